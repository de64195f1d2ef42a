"""Live synchronous halving: trials pause at each rung, and the best go on from what they saved."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import DropJob, StartJob
from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from ecoshare.record import event_log
from tests.planning import planned
from tests.runtime.running import Finished, job_file, resume, run, start
from tests.warm import wait_for

TRIAL = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

lr, goes_on = float(sys.argv[1]), "--resume" in sys.argv
world = int(os.environ.get("WORLD_SIZE", "1"))
rank = int(os.environ.get("RANK", "0"))
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
whole = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
part, wanted = whole[rank::world], whole.sum(1, keepdim=True)[rank::world]
epoch, state = 0, f"state-{lr}.pt"
if goes_on and os.path.exists(state):
    saved = torch.load(state)
    epoch = saved["epoch"]
    model.load_state_dict(saved["model"])
trained = model
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    trained = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
if rank == 0:
    print(f"{world} ranks go on after {epoch}", flush=True)
while epoch < 9:
    for _ in range(20):
        loss = (trained(part) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02 / world)
    epoch += 1
    if rank == 0:
        torch.save({"epoch": epoch, "model": model.state_dict()}, f"{state}.part")
        os.replace(f"{state}.part", state)
        print(f"epoch {epoch} loss={loss.item():.6f}", flush=True)
if "RANK" in os.environ:
    del trained, loss
    dist.destroy_process_group()
"""
RATES = [0.1, 0.03, 0.01, 0.003, 0.001]
"""The first one is the best, and pauses at each rung: the last to come need not."""


def search(folder: Path, rates: list[float] = RATES, **keys: Any) -> dict[str, Any]:
    (folder / "trial.py").write_text(TRIAL)
    stop = {"rule": "halving", "reduction": 2, "steps": 9, **keys.pop("stop", {})}
    sweep = {"grid": {"lr": rates}, "metric": "loss={:f}", "stop": stop}
    job = {"name": "s", "script": "trial.py", "args": ["{lr}"], "resume_args": ["--resume"], "preemptible": True}
    return {**job, "sweep": sweep, **keys}


def epochs(done: Finished, name: str) -> list[int]:
    """Epochs that the attempts of a trial told, in order."""
    folder = done.folder / "jobs" / name
    logs = [*sorted(folder.glob("stdout.attempt-*.log")), folder / "stdout.log"]
    return [int(epoch) for path in logs for epoch in re.findall(r"epoch (\d+)", path.read_text())]


def check(done: Finished, rates: int = len(RATES)) -> None:
    """Check that the sweep found its best trial, which did each epoch once, and that the others ended at rungs."""
    assert done.code == 0, done.stderr
    (found,) = done.summary["sweeps"]
    assert found["states"] == {"completed": 1, "pruned": rates - 1}
    best = found["best"][0]["name"]
    assert best == "s.0000", "the largest rate is the best"
    assert epochs(done, best) == list(range(1, 10))
    assert done.job(best)["steps"] == 9 and done.job(best)["attempts"] > 1
    for number in range(1, rates):
        job = done.job(f"s.{number:04d}")
        assert job["state"] == "pruned" and job["steps"] < 9


@pytest.mark.nightly
def test_the_best_trials_go_on_from_rung_to_rung(tmp_path: Path) -> None:
    done = run(tmp_path, search(tmp_path))
    check(done)
    dropped = [each.job for each in event_log.read(done.folder / "events.jsonl") if isinstance(each, DropJob)]
    assert set(dropped[:2]) < {"s.0002", "s.0003", "s.0004"}, "two of five go on from the first rung"


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_ended_between_two_rungs_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    """The first rung is not decided again, and no epoch is done twice unless it was cut off."""
    process = start(job_file(tmp_path, search(tmp_path)))
    folder = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: "DropJob" in _text(folder / "events.jsonl"))
    process.send_signal(how)
    process.communicate()
    wait_for(lambda: not _is_locked(folder))
    done = resume(folder)
    check(Finished(done.code, done.stdout, done.stderr, folder))
    dropped = [each.job for each in event_log.read(folder / "events.jsonl") if isinstance(each, DropJob)]
    assert dropped and len(set(dropped)) == len(dropped)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _is_locked(folder: Path) -> bool:
    """Whether a process of the run is left."""
    own = str(folder.resolve())
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if own in place.read_bytes().decode(errors="replace"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.nightly
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_water_filling_makes_the_trials_that_are_left_wider(tmp_path: Path) -> None:
    """Two partitions: two trials have one each at first, and the best of three goes on with two ranks."""
    wide = {"launch": "ranks", "most_gpus": 2, "iterations": 180}
    narrow = (
        "--device",
        "cpu/2",
        "--policy",
        "fluid",
        "--lanes",
        "1",
        "--jobs-per-lane",
        "1",
        "--option",
        "restart=0.5",
    )
    done = run(tmp_path, search(tmp_path, [0.1, 0.01, 0.001], stop={"reduction": 3}, **wide), options=narrow)
    check(done, rates=3)
    starts = [each for each in event_log.read(done.folder / "events.jsonl") if isinstance(each, StartJob)]
    assert [len(each.lanes) for each in starts if each.attempt == 1][:2] == [1, 1]
    assert [len(each.lanes) for each in starts if each.job == "s.0000"][-1] == 2
    assert "2 ranks go on after" in done.log("s.0000").decode()


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ({"preemptible": False}, "give `preemptible: true`"),
        ({"isolation": "lane"}, "leave out `isolation: lane`"),
    ],
)
def test_trials_must_be_able_to_go_on(tmp_path: Path, keys: dict[str, Any], hint: str) -> None:
    (tmp_path / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": [search(tmp_path, **keys)]}))
    device = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 1 << 34, 8)
    with pytest.raises(InvalidJobFile) as caught:
        planned(load(tmp_path / "jobs.yaml"), (device,))
    assert "jobs[0].sweep: with `stop: halving` a trial is stopped at each rung" in str(caught.value)
    assert hint in (caught.value.hint or "")
