"""Jobs that are given more or fewer devices: they save their state, and go on with another number of ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import StartJob
from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from ecoshare.record import event_log
from ecoshare.runtime.planning.plan import Plan
from tests.planning import planned as made_plan
from tests.runtime.running import run

TRAINS = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
state = f"{sys.argv[1]}.pt"
step, steps = 0, int(sys.argv[2])
if "--resume" in sys.argv and os.path.exists(state):
    saved = torch.load(state)
    step = saved["step"]
    model.module.load_state_dict(saved["model"])

def save(*_):
    if rank == 0:
        torch.save({"step": step, "model": model.module.state_dict()}, state)
        print(f"to {step}", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print(f"rank {rank} of {world} from {step}", flush=True)
while step < steps:
    whole = torch.randn(64, 32, generator=torch.Generator().manual_seed(step))  # the same batches at any width
    loss = model(whole[rank::world]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    time.sleep(0.0 if "--fast" in sys.argv else 0.04 / world)
print(f"to {step}: {model.module.weight.sum().item():.4f}", flush=True)
dist.destroy_process_group()
"""
"""Script that trains on whole batches, cut into parts for its ranks. Arguments: name, steps, `--resume`, `--fast`."""

ELASTIC = {"launch": "ranks", "most_gpus": 2, "preemptible": True, "resume_args": ["--resume"]}
NARROW = ("--device", "cpu/2", "--policy", "fluid", "--lanes", "1", "--jobs-per-lane", "1", "--option", "restart=1")


def trains(folder: Path, name: str, steps: int, **keys: Any) -> dict[str, Any]:
    (folder / "trains.py").write_text(TRAINS)
    return {"name": name, "script": "trains.py", "args": [name, steps], "iterations": steps, **keys}


@pytest.mark.nightly
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_a_job_gives_a_device_away_and_takes_it_back(tmp_path: Path) -> None:
    """It loses no iteration and does none twice, and ends where it ends alone, up to rounding."""
    jobs = [
        trains(tmp_path, "long", 300, **ELASTIC),
        trains(tmp_path, "short", 30, launch="ranks", arrival="3 s"),
        {**trains(tmp_path, "alone", 300, launch="ranks", after_any=["long"]), "args": ["alone", 300, "--fast"]},
    ]
    done = run(tmp_path, *jobs, options=NARROW)
    assert done.code == 0, done.stderr
    folder = done.folder / "jobs" / "long"
    logs = [folder / f"stdout.attempt-{attempt}.log" for attempt in (1, 2)] + [folder / "stdout.log"]
    parts = [path.read_text().splitlines() for path in logs]
    assert [lines[0].partition(" from ")[0] for lines in parts] == ["rank 0 of 2", "rank 0 of 1", "rank 0 of 2"]
    begins = [int(lines[0].rpartition(" ")[2]) for lines in parts]
    ends = [int(lines[1].removeprefix("to ").partition(":")[0]) for lines in parts]
    assert begins == [0, *ends[:-1]] and ends[-1] == 300
    last = done.log("alone").decode().splitlines()[-1]
    assert float(parts[-1][-1].rpartition(" ")[2]) == pytest.approx(float(last.rpartition(" ")[2]), abs=2e-3)
    job = done.job("long")
    assert (job["state"], job["attempts"], job["devices"], job["widened"]) == ("completed", 3, ["cpu:0", "cpu:1"], True)
    starts = [each for each in event_log.read(done.folder / "events.jsonl") if isinstance(each, StartJob)]
    assert [len(each.lanes) for each in starts if each.job == "long"] == [2, 1, 2]
    assert done.job("short")["widened"] is False
    assert "long had more devices than it needs" in str(done.summary["baseline"]["unknown"])


def planned(folder: Path, *jobs: dict[str, Any], **options: Any) -> Plan:
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": list(jobs)}))
    devices = (DeviceInfo(f"cuda:{n}", "cuda", "nvidia", "A GPU", f"GPU-{n}", 1 << 34, 8) for n in range(2))
    return made_plan(load(folder / "jobs.yaml"), tuple(devices), **options)


@pytest.mark.parametrize(
    ("keys", "said", "hint"),
    [
        ({"gpus": 2, "most_gpus": 1}, "1 is less than the 2 of `gpus`", ""),
        ({"preemptible": False}, "a job is stopped and started again to get", "give `preemptible: true`"),
        ({"launch": "torchrun"}, "torchrun keeps its number of ranks", "give `launch: ranks`"),
        ({"isolation": "lane", "launch": None}, "jobs that share a process have one device", "leave out `isolation"),
        ({"most_gpus": 0.5}, "expected whole devices, got '0.5'", ""),
        ({"service": {"p99": "50 ms"}, "preemptible": None, "launch": None}, "a service runs on one device", ""),
    ],
)
def test_mistakes_have_their_place_in_the_file(tmp_path: Path, keys: dict[str, Any], said: str, hint: str) -> None:
    job = {key: value for key, value in {**trains(tmp_path, "a", 5), **ELASTIC, **keys}.items() if value is not None}
    job.pop("iterations")
    with pytest.raises(InvalidJobFile) as caught:
        planned(tmp_path, job)
    assert f"jobs[0].most_gpus: {said}" in str(caught.value) and hint in (caught.value.hint or "")


def test_more_devices_than_the_run_has_are_no_mistake(tmp_path: Path) -> None:
    plan = planned(tmp_path, trains(tmp_path, "a", 5, **{**ELASTIC, "most_gpus": 8}), policy="fluid")
    assert plan.jobs[0].spec.widest == 8 and not [note for note in plan.notes if "a " in note and "devices" in note]


def test_the_plan_says_which_policies_resize(tmp_path: Path) -> None:
    plan = planned(tmp_path, trains(tmp_path, "a", 5, **ELASTIC), trains(tmp_path, "b", 5), policy="fair")
    assert "policy fair gives a as many devices as `gpus`; fluid and equal may give more" in plan.notes
    plan = planned(tmp_path, trains(tmp_path, "b", 5), policy="fair")
    assert not [note for note in plan.notes if "as many devices" in note]
