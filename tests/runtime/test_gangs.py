"""Gangs: jobs of which ecoshare starts a process for each device, on partitions of the processors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.events import IterationsDone, JobExited
from ecoshare.lane import trace
from ecoshare.lane.trace import Kind
from ecoshare.record import event_log
from tests.runtime.running import Finished, job_file, run, slow_steps, start
from tests.warm import ecoshare, wait_for

DDP = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, steps, fails = dist.get_rank(), int(sys.argv[1]), sys.argv[2:]
if fails == ["saves"] and rank == 0:
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1.0), open("saved", "w").close(), sys.exit(0)))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters())
data = torch.Generator().manual_seed(100 + rank)
for step in range(steps):
    loss = model(torch.randn(16, 32, generator=data)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if fails == [f"raises-{rank}"] and step == 3:
        raise RuntimeError("it has no more data")
    if fails == ["sleeps"] and step == 3:
        print("sleeps", flush=True)
        time.sleep(60)
total = loss.detach().clone()
dist.all_reduce(total)
line = json.dumps([rank, dist.get_world_size(), total.item().hex(), sorted(os.sched_getaffinity(0))])
os.write(1, f"{line}\\n".encode())  # in one piece: under torchrun all ranks write to one file
dist.destroy_process_group()
"""
PARTS = ("--device", "cpu/2")

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")


def gang(folder: Path, name: str, steps: int = 30, *args: str, **keys: Any) -> dict[str, Any]:
    (folder / "ddp.py").write_text(DDP)
    return {"name": name, "script": "ddp.py", "args": [steps, *args], "gpus": 2, "launch": "ranks", **keys}


def told(path: Path) -> list[Any]:
    last: list[Any] = json.loads(path.read_text().splitlines()[-1])
    return last


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A gang, alone unless the machine is slow, one that fails in its second rank, and then two beside other jobs."""
    folder = tmp_path_factory.mktemp("gangs")
    beside = [gang(folder, name, 400, arrival="4 s") for name in ("again", "and-again")]
    jobs = [gang(folder, "first", 400), gang(folder, "fails", 30, "raises-1", arrival="3 s"), *beside]
    jobs += [slow_steps(name, 150, 5, arrival="4 s") for name in ("left", "right")]
    return run(folder, *jobs, options=PARTS)


@pytest.mark.slow
def test_ranks_find_each_other_and_have_a_partition_each(done: Finished) -> None:
    folder = done.folder / "jobs" / "first"
    first, second = told(folder / "stdout.log"), told(folder / "rank-1" / "stdout.log")
    assert (first[:2], second[:2]) == ([0, 2], [1, 2])
    assert first[2] == second[2], "the sum of all ranks"
    processors = [device["processors"] for device in done.summary["devices"]]
    assert [first[3], second[3]] == processors
    job = done.job("first")
    assert (job["state"], job["devices"], job["iterations"]) == ("completed", ["cpu:0", "cpu:1"], 400)
    assert job["keeps_lane"] is None


@pytest.mark.slow
def test_gangs_that_share_their_lanes_compute_what_one_computes_alone(done: Finished) -> None:
    assert done.code == 1, "one fails on purpose"
    for name in ("again", "and-again"):
        assert done.log(name) == done.log("first")
        assert done.job(name)["handovers"] > 2 and done.job(name)["keeps_lane"] is None
    for name in ("left", "right"):
        assert done.job(name)["state"] == "completed"


@pytest.mark.slow
def test_ranks_of_a_gang_have_their_turns_at_the_same_iterations(done: Finished) -> None:
    """The traces of both ranks: iterations done in each turn."""
    folder = done.folder / "jobs" / "again"
    first, second = (_iterations_in_turns(place) for place in (folder, folder / "rank-1"))
    assert len(first) > 2 and first == second


def _iterations_in_turns(folder: Path) -> list[int]:
    turns: list[int] = []
    for mark in trace.read(trace.trace_path(folder, 1)):
        if mark.kind is Kind.TURN_BEGINS:
            turns.append(0)
        elif mark.kind is Kind.TRAIN:
            turns[-1] += 1
    return turns


@pytest.mark.nightly
def test_a_gang_computes_what_torchrun_computes(done: Finished, tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(DDP)
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "ddp.py", "400"]
    for _ in range(3):  # gloo's threads now and then abort a rank under torchrun at its exit
        alone = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        if alone.returncode == 0:
            break
    sums = {json.loads(each)[2] for each in alone.stdout.splitlines() if each.startswith("[")}
    assert sums == {told(done.folder / "jobs" / "first" / "stdout.log")[2]}, alone.stderr


@pytest.mark.slow
def test_one_rank_ends_the_attempt_of_all_and_is_named(done: Finished) -> None:
    job = done.job("fails")
    assert (job["state"], job["exit_code"]) == ("failed", 1)
    assert job["error"] == "rank 1: RuntimeError: it has no more data"
    assert "jobs/fails/rank-1/stderr.log" in done.stderr
    assert job["finish_s"] - job["start_s"] < 30.0, "the other rank was not left waiting"


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_others_at_once(tmp_path: Path) -> None:
    path = job_file(tmp_path, gang(tmp_path, "a", 30, "sleeps"))
    process = start(path, *PARTS)
    folder = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: _said(folder / "jobs" / "a" / "rank-1" / "stdout.log"))
    (second,) = _ranks(folder, "1")
    (first,) = _ranks(folder, "0")
    began_s = time.monotonic()
    os.kill(second, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{first}").exists())
    assert time.monotonic() - began_s < 5.0
    _, stderr = process.communicate()
    assert process.returncode == 1 and "a: crashed: rank 1: killed by SIGKILL" in stderr


@pytest.mark.slow
def test_ctrl_c_ends_all_ranks_after_the_same_iteration(tmp_path: Path) -> None:
    """A rank that ended at its own next boundary would leave the others waiting in a collective."""
    path = job_file(tmp_path, gang(tmp_path, "a", 100_000, "saves"))
    process = start(path, *PARTS)
    folder = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: _count(folder) > 0)
    began_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130 and time.monotonic() - began_s < 8.0, "before the end of the grace"
    (end,) = [entry for entry in event_log.read(folder / "events.jsonl") if isinstance(entry, JobExited)]
    assert end.outcome.value == "stopped"
    assert (tmp_path / "saved").exists(), "the first rank saves on SIGTERM; the end of the second did not kill it"
    own = folder / "jobs" / "a"
    assert _iterations_in_turns(own) == _iterations_in_turns(own / "rank-1")


def _count(folder: Path) -> int:
    """Iterations of job a that the log knows."""
    if not (folder / "events.jsonl").exists():
        return 0
    entries = event_log.read(folder / "events.jsonl")
    return max((entry.usage.iterations for entry in entries if isinstance(entry, IterationsDone)), default=0)


def _said(path: Path) -> bool:
    return path.exists() and "sleeps" in path.read_text()


def _ranks(folder: Path, rank: str) -> list[int]:
    """Process of job a that is this rank, by the file that it writes to."""
    own = folder.resolve() / "jobs" / "a" / ("" if rank == "0" else f"rank-{rank}") / "stdout.log"
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "fd" / "1").readlink() == own:
                found.append(int(place.name))
    return found


@pytest.mark.nightly
def test_torchrun_itself_has_all_devices_of_its_job(tmp_path: Path) -> None:
    done = run(tmp_path, gang(tmp_path, "a", 10, launch="torchrun", retries=3), options=PARTS)
    assert done.code == 0, done.stderr
    lines = [json.loads(line) for line in done.log("a").decode().splitlines() if line.startswith("[")][-2:]
    assert sorted(line[:2] for line in lines) == [[0, 2], [1, 2]]
    assert all(line[3] == sorted(os.sched_getaffinity(0)) for line in lines)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"gpus": 0.5}, "jobs[0].gpus: expected whole devices, got '0.5'; jobs take turns on a device"),
        (
            {"nodes": 2, "launch": "torchrun"},
            "jobs[0].nodes: only the ranks of `launch: ranks` can run on several machines",
        ),
        ({"gpus": 3}, "jobs[0].gpus: the job needs 3 devices, and the run has 2"),
        ({"launch": "mpirun"}, "jobs[0].launch: expected 'ranks' or 'torchrun', got 'mpirun'"),
    ],
)
def test_mistakes_have_their_place_in_the_file(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    path = job_file(tmp_path, gang(tmp_path, "a", **keys))
    done = ecoshare("run", path, *PARTS, "--runs", tmp_path / "runs")
    assert done.returncode == 3 and said in done.stderr and f"{path}:1:" in done.stderr
    assert not (tmp_path / "runs").exists()
