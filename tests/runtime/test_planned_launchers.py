"""Launchers in a plan: the memory that they are granted, and the words about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Done, JobArrived, RunOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.jobs.load import load
from ecoshare.runtime.planning.plan import Plan
from tests.planning import planned as made_plan

GIB = 1 << 30
GPU = DeviceInfo("cuda:0", "cuda", "nvidia", "A GPU", "GPU-1", 40 * GIB, 8)
PROCESSORS = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 40 * GIB, 8)
RANKS: dict[str, Any] = {"name": "ranks", "module": "torch.distributed.run", "args": ["train.py"]}


def planned(folder: Path, device: DeviceInfo, *jobs: dict[str, Any], **options: Any) -> Plan:
    (folder / "train.py").write_text("import torch\n")
    given = jobs or (RANKS, {"name": "plain", "script": "train.py"})
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": list(given)}))
    return made_plan(load(folder / "jobs.yaml"), (device,), **options)


@pytest.mark.parametrize(("policy", "lanes"), [("fair", 2), ("energy", 3)])
def test_a_launcher_on_a_gpu_has_all_memory_of_the_device(tmp_path: Path, policy: str, lanes: int) -> None:
    """Nothing limits what its child processes allocate, so another job beside them could run out of memory."""
    plan = planned(tmp_path, GPU, policy=policy, lanes=lanes)
    core = Scheduler()
    opened = RunOpened(0.0, **plan.opening())
    for command in core.handle(opened):
        core.handle(Done(0.0, command.id))
    started = [each for job in plan.jobs for each in core.handle(JobArrived(1.0, job.spec))]
    caps = {each.job: each.cap_bytes for each in started if isinstance(each, StartJob)}
    assert caps == {"ranks": 40 * GIB}, "nothing is left for another job"


def test_a_launcher_on_processors_is_watched_like_any_job(tmp_path: Path) -> None:
    ranks, plain = planned(tmp_path, PROCESSORS).jobs
    assert ranks.spec.memory is plain.spec.memory is None


def test_the_plan_names_launchers_and_what_follows(tmp_path: Path) -> None:
    plan = planned(tmp_path, GPU)
    words = "child processes do the work, so the job keeps its lane from start to end"
    assert f"ranks (torchrun): {words}, with all memory of the device" in plan.notes
    assert [job["launcher"] for job in plan.as_dict()["jobs"]] == ["torchrun", None]
    assert f"ranks (torchrun): {words}" in planned(tmp_path, PROCESSORS).notes
    assert not [note for note in planned(tmp_path, GPU, {"name": "a", "script": "train.py"}).notes if "lane" in note]


def test_a_limit_that_would_end_a_launcher_is_told(tmp_path: Path) -> None:
    notes = planned(tmp_path, GPU, {**RANKS, "startup_timeout": "1 min"}).notes
    assert any("`startup_timeout` of ranks" in note and "the whole job" in note for note in notes)


def test_a_launcher_shares_no_process(tmp_path: Path) -> None:
    (job,) = planned(tmp_path, PROCESSORS, {**RANKS, "isolation": "lane"}).jobs
    assert not job.spec.fused and job.launcher == "torchrun"
    assert replace(job, called=True).launcher == "", "a call of a function is no program"
