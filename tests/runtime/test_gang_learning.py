"""The loss of a gang between machines is learned, and one that loses much keeps to one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device, DeviceInfo
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.core.events import Config, Done, JobArrived, JobExited, RunOpened
from ecoshare.jobs.load import load
from ecoshare.knowledge.calibration_store import IterationTime
from ecoshare.knowledge.gang_time_store import GangTimeStore
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record.accounts.alone_time import WARM_UP
from ecoshare.runtime.planning.learning import AloneIterations, gang_times
from ecoshare.runtime.planning.plan import Plan
from tests.planning import planned as made_plan
from tests.runtime.test_calibration_learning import counted, turn


def data(**lanes: tuple[int, ...]) -> AloneIterations:
    """Run with a device in each of two lanes on node `a` and one on `b`; a gang of class `g` beside other jobs."""
    nodes = {0: "a", 1: "a", 2: "b"}
    devices = tuple(Device(f"d{lane}", node, 1) for lane, node in nodes.items())
    entries: list[Any] = [RunOpened(0.0, 3, Config("fair", 1), devices)]
    entries += [OpenLane(lane, lane, f"d{lane}", 1) for lane in nodes]
    traces = {}
    for number, (name, where) in enumerate(lanes.items(), start=10):
        from_s = 100.0 * number
        spec = JobSpec(name, "g", gpus=len(where), nodes=2)
        entries += [JobArrived(from_s, spec), StartJob(number, name, 1, where, 1), Done(from_s, number)]
        traces[name, 1] = turn(from_s, 50, 0.1 if len({nodes[lane] for lane in where}) == 1 else 0.2)
        entries.append(JobExited(from_s + 50.0, name, 1, Outcome.COMPLETED, 0, "", Usage(keeps_lane="ranks")))
    return counted(entries, traces)


def test_times_are_by_the_number_of_machines() -> None:
    found = gang_times(data(within=(0, 1), over=(1, 2), narrow=(0,)), "r")
    assert {key: (round(each.seconds, 6), each.iterations) for key, each in found.items()} == {
        ("g", 1): (0.1, 50 - WARM_UP),
        ("g", 2): (0.2, 50 - WARM_UP),
    }


def planned(folder: Path, nodes: int, seconds: dict[int, float], gpus: int = 2, a_node: int = 2) -> Plan:
    (folder / "train.py").write_text("import torch\n")
    job = {"name": "ddp", "script": "train.py", "gpus": gpus, "launch": "ranks", "nodes": nodes}
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": [job]}))
    devices = tuple(
        DeviceInfo(f"n{node}/cuda:{n}", "cuda", "nvidia", "A GPU", f"GPU-{node}{n}", 1 << 34, 8, node=f"n{node}")
        for node in range(2)
        for n in range(a_node)
    )
    loaded, store = load(folder / "jobs.yaml"), ProfileStore(folder / "profiles")
    (job_class,) = {each.job_class.name for each in made_plan(loaded, devices, store=store).jobs}
    kept = GangTimeStore(store.folder)
    for over, each_s in seconds.items():
        kept.add(job_class, over, IterationTime(seconds=each_s, iterations=100, run="r"))
    return made_plan(loaded, devices, store=store)


@pytest.mark.parametrize(
    ("nodes", "seconds", "most"),
    [
        (2, {}, 2),
        (2, {1: 0.1, 2: 0.12}, 2),
        (2, {1: 0.1, 2: 0.13}, 1),
        (2, {2: 0.2}, 2),
        (3, {1: 0.1, 2: 0.12, 3: 0.5}, 3),
        (2, {1: 0.1, 3: 0.5}, 2),
    ],
)
def test_a_gang_that_loses_a_fifth_between_machines_keeps_to_one(
    tmp_path: Path, nodes: int, seconds: dict[int, float], most: int
) -> None:
    plan = planned(tmp_path, nodes, seconds)
    assert plan.jobs[0].spec.nodes == most and plan.jobs[0].spec.takes_turns is (most == 1)
    told = [note for note in plan.notes if "keeps to one machine" in note]
    assert told == (["ddp keeps to one machine: over 2 machines its iterations took 1.30 times as long"] * (most == 1))


def test_a_gang_that_no_machine_can_hold_has_to_span(tmp_path: Path) -> None:
    assert planned(tmp_path, 2, {1: 0.1, 2: 0.5}, gpus=3).jobs[0].spec.nodes == 2
