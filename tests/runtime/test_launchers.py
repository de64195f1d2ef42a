"""Jobs of which child processes use the device: each keeps its lane, and no other job works meanwhile.

The GPU is the fake one, with the stand-in for CUDA in each process that uses it. Every process writes when its work
began and ended.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.events import JobExited
from ecoshare.record import event_log
from tests.driver import COMPILER
from tests.driver.runs import OnGpu, run_on_gpu, two_gpus
from tests.driver.training import CONTEXT_BYTES, MIB, ROOT
from tests.runtime.running import Finished, run
from tests.warm import ecoshare


def on_fake_gpu(test: Any) -> Any:
    """Mark of tests on the fake GPU."""
    has_none = pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
    return pytest.mark.slow(has_none(test))


CLOCK_TICK_S = 0.01
"""Most that the time of a file lags behind the clock, on kernels with 100 ticks a second."""

ALLOCATED_BYTES = 256 * MIB
"""Memory that each process allocates on the GPU."""

WORKS = f"""
import os
import sys
import time

sys.path.insert(0, {str(ROOT)!r})

import torch
from tests.driver.cuda_standin import StandIn


class Worker:
    def __init__(self, name):
        self.gpu = StandIn(0.5, 0.5, {CONTEXT_BYTES})
        self.marks = open(f"{{name}}.{{os.getpid()}}.marks", "a", buffering=1)
        self.gpu.allocate({ALLOCATED_BYTES})  # the first use of the device, which waits for the turn

    def work(self, seconds):
        began_s = time.time()
        self.gpu.work(seconds)
        torch.cuda.synchronize()
        print(began_s, time.time(), file=self.marks)
"""
"""Module `works`, with a `Worker` that writes the times of its work into a file."""

TRAINS = """
import sys
import torch
from works import Worker

worker = Worker("trains")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    loss = model(torch.ones(1, 4)).sum()
    worker.work(0.02)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

RANK = """
import os
import torch
import torch.distributed as dist
from works import Worker

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo")
worker = Worker("ranks")
for step in range(int(os.environ["STEPS"])):
    worker.work(0.02)
    dist.all_reduce(torch.ones(1))
dist.barrier()
os._exit(0)
"""

SPAWNS = """
import time
import torch.multiprocessing as mp
from works import Worker

def train(rank):
    worker = Worker("ranks")
    for step in range(40):
        worker.work(0.02)

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""

FORKS = """
import multiprocessing
from works import Worker

def train():
    worker = Worker("ranks")
    for step in range(40):
        worker.work(0.02)

processes = [multiprocessing.get_context("fork").Process(target=train) for _ in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
assert not any(process.exitcode for process in processes)
"""

RUNS_A_PROGRAM = """
import subprocess
import sys

CODE = '''
from works import Worker
worker = Worker("ranks")
for step in range(200):
    worker.work(0.02)
'''
subprocess.run([sys.executable, "-c", CODE], check=True)
"""

Interval = tuple[float, float]


def intervals(folder: Path, name: str) -> list[Interval]:
    """Begin and end (s) of each piece of work of the processes of one name."""
    lines = [line for path in folder.glob(f"{name}.*.marks") for line in path.read_text().splitlines()]
    assert lines, f"{name} has done nothing"
    return [(float(began), float(ended)) for began, ended in map(str.split, lines)]


def overlaps(some: list[Interval], others: list[Interval]) -> list[tuple[Interval, Interval]]:
    """Pairs of intervals that have a moment in common."""
    return [(one, other) for one, other in product(some, others) if one[0] < other[1] and other[0] < one[1]]


def torchrun(port: int, script: str = "rank.py") -> dict[str, Any]:
    """Job with two ranks."""
    address = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    args = ["--nproc-per-node", "2", *address, script]
    return {"name": "ranks", "module": "torch.distributed.run", "args": args, "env": {"STEPS": "40"}}


def beside_a_training(folder: Path, job: dict[str, Any], steps: int = 100) -> OnGpu:
    """Run of a job and of an ordinary training in one lane of the fake GPU."""
    scripts = {"works": WORKS, "trains": TRAINS, "rank": RANK, "spawns": SPAWNS, "forks": FORKS, "runs": RUNS_A_PROGRAM}
    driver = two_gpus(folder)
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    done = run_on_gpu(folder, driver, {"name": "trains", "script": "trains.py", "args": [str(steps)]}, job)
    assert [each["state"] for each in done.done.summary["jobs"]] == ["completed", "completed"]
    return done


def told(done: Finished, job: str) -> str:
    """Last word of the log on why a job keeps its lane."""
    entries = event_log.read(done.folder / "events.jsonl")
    return next(each.usage.keeps_lane for each in entries if isinstance(each, JobExited) and each.job == job)


@pytest.mark.nightly
@on_fake_gpu
@pytest.mark.parametrize(
    ("job", "why"),
    [
        pytest.param(torchrun(29531), "torchrun starts processes", id="torchrun"),
        pytest.param({"name": "ranks", "script": "spawns.py"}, "multiprocessing (spawn)", id="spawn"),
        pytest.param({"name": "ranks", "script": "forks.py"}, "a process that it has started", id="fork"),
    ],
)
def test_no_other_job_works_while_children_do(tmp_path: Path, job: dict[str, Any], why: str) -> None:
    done = beside_a_training(tmp_path, job).done
    ranks, trains = intervals(tmp_path, "ranks"), intervals(tmp_path, "trains")
    assert len(ranks) == 80 and len(trains) == 100
    assert not overlaps(ranks, trains)
    assert why in done.job("ranks")["keeps_lane"] == told(done, "ranks")
    assert done.job("trains")["keeps_lane"] is None


@pytest.mark.nightly
@on_fake_gpu
def test_the_memory_of_children_is_that_of_their_job(tmp_path: Path) -> None:
    """The launcher itself has nothing on the GPU."""
    job = {**torchrun(29533), "env": {"STEPS": "120"}}
    done = beside_a_training(tmp_path, job, steps=5).done
    assert done.job("ranks")["peak_memory_bytes"] == 2 * (CONTEXT_BYTES + ALLOCATED_BYTES)


@pytest.mark.nightly
@on_fake_gpu
def test_a_program_that_a_job_runs_is_seen_on_the_device(tmp_path: Path) -> None:
    """The program has begun before it can be seen, so there is an overlap at first, and none from then on."""
    done = beside_a_training(tmp_path, {"name": "ranks", "script": "runs.py"}, steps=250).done
    noted_s = (done.folder / "jobs" / "ranks" / "keeps-lane.txt").stat().st_mtime + CLOCK_TICK_S
    ranks, trains = intervals(tmp_path, "ranks"), intervals(tmp_path, "trains")
    found = overlaps(ranks, trains)
    assert found and max(ended_s for _, (_, ended_s) in found) < noted_s < max(ended_s for _, ended_s in ranks)
    assert "a process that it has started" in done.job("ranks")["keeps_lane"]


ON_PROCESSORS = """
import os
import time
import torch
import torch.distributed as dist

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo")
began_s = time.time()
held = torch.zeros(1 << 24)
time.sleep(3.5)
with open(f"ranks.{os.getpid()}.marks", "w") as marks:
    print(began_s, time.time(), file=marks)
dist.barrier()
os._exit(0)
"""

PLAIN = """
import time
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with open("trains.0.marks", "w") as marks:
    for step in range(50):
        began_s = time.time()
        time.sleep(0.01)
        loss = model(torch.ones(1, 4)).sum()
        loss.backward()
        print(began_s, time.time(), file=marks)
        optimizer.step()  # its end is a boundary, at which the job may wait for its turn
"""


@pytest.mark.nightly
def test_on_processors_a_launcher_keeps_its_lane_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(ON_PROCESSORS)
    (tmp_path / "trains.py").write_text(PLAIN)
    done = run(tmp_path, torchrun(29535), {"name": "trains", "script": "trains.py"})
    assert [each["state"] for each in done.summary["jobs"]] == ["completed", "completed"], done.stderr
    ranks = intervals(tmp_path, "ranks")
    assert len(ranks) == 2 and not overlaps(ranks, intervals(tmp_path, "trains"))
    why = "torchrun starts processes that use the device"
    assert done.job("ranks")["keeps_lane"] == told(done, "ranks") == why
    assert f"ranks: keeps its lane to its end: {why}" in done.stderr
    assert done.job("ranks")["peak_memory_bytes"] > 3 * (1 << 26), "the tensors of both ranks, and torch"
    explained = ecoshare("explain", done.folder, "ranks").stdout
    assert f"kept its lane to its end: {why}" in explained
    assert "had no turn: ranks kept the lane for child processes" in ecoshare("explain", done.folder, "trains").stdout
    planned = ecoshare("run", tmp_path / "jobs.yaml", "--device", "cpu", "--dry-run").stdout
    assert "launchers  ranks (torchrun): each keeps its lane from start to end" in planned
