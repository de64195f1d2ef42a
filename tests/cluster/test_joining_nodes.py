"""Machines that come while a run goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ecoshare.base.segment import Segment
from ecoshare.cluster import joined_nodes
from ecoshare.cluster.links import ProcessLink
from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.core.events import DeviceFailed, RunOpened
from ecoshare.devices import registry
from ecoshare.jobs.load import load
from ecoshare.record import event_log, run_documents
from ecoshare.runtime.log_turnover import LogTurnover
from ecoshare.runtime.nodes.run_node import JoiningDevices
from tests.cluster.agents import check_alike, members, run_on, states, strikes
from tests.planning import begun, planned
from tests.runtime.running import job_file, slow_steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_nodes, "LOOK_S", 0.2)


@pytest.mark.nightly
def test_a_machine_that_comes_takes_jobs(tmp_path: Path) -> None:
    jobs = [slow_steps(f"j{number}", 300, 5) for number in range(4)]
    done = run_on(tmp_path, jobs, ["n0"], coming=lambda: ["n0", "n1"], lanes=1, jobs_per_lane=1)
    assert states(done) == {f"j{number}": ("completed", 300) for number in range(4)}
    entries = list(event_log.read(done.folder.events))
    openings = [each for each in entries if isinstance(each, RunOpened)]
    assert [[device.name for device in each.devices] for each in openings] == [["n0/cpu"], ["n0/cpu", "n1/cpu"]]
    assert [each.device for each in entries if isinstance(each, OpenLane)] == ["n0/cpu", "n1/cpu"]
    assert {each.lanes for each in entries if isinstance(each, StartJob)} == {(0,), (1,)}
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    check_alike(done.folder.path, list(states(done)), 300, 5)
    environment = run_documents.read_environment(done.folder.environment)
    assert [each["name"] for each in environment["devices"]] == ["n0/cpu", "n1/cpu"]
    assert set(environment["nodes"]) == {"n0", "n1"} and not members(done.folder.path)
    assert {each.name for each in done.data.summary.devices} == {"n0/cpu", "n1/cpu"}


@pytest.mark.nightly
def test_a_machine_takes_the_place_of_a_lost_one(tmp_path: Path) -> None:
    """The jobs of the lost one wait until its lease is over, and then run there."""
    lost: list[bool] = []

    def kill(link: ProcessLink) -> None:
        link.close()
        lost.append(True)

    jobs = [slow_steps(f"j{number}", 1500, 5) for number in range(2)]
    done = run_on(
        tmp_path,
        jobs,
        begun=strikes(kill, "n1", tmp_path),
        coming=lambda: ["n0", "n1", *(["n2"] if lost else [])],
        lanes=1,
        jobs_per_lane=1,
    )
    entries = list(event_log.read(done.folder.events))
    assert [each.device for each in entries if isinstance(each, DeviceFailed)] == ["n1/cpu"]
    last = [each for each in entries if isinstance(each, RunOpened)][-1]
    assert [device.name for device in last.devices] == ["n0/cpu", "n2/cpu"] and set(last.lanes) == {0, 2}
    assert states(done) == {"j0": ("completed", 1500), "j1": ("completed", 1500)}
    starts = [(each.job, each.lanes) for each in entries if isinstance(each, StartJob)]
    assert starts[:2] == [("j0", (0,)), ("j1", (1,))] and starts[2:] == [("j1", (2,))]
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    assert not members(done.folder.path)


@pytest.mark.nightly
def test_a_run_ends_while_a_machine_is_about_to_join(tmp_path: Path) -> None:
    started: dict[str, ProcessLink] = {}
    done = run_on(
        tmp_path, [slow_steps("j", 30, 5)], ["n0"], started.update, coming=lambda: ["n0", "n1"] if started else []
    )
    assert states(done) == {"j": ("completed", 30)}
    assert not members(done.folder.path)


def test_a_device_that_fails_before_the_run_uses_it_never_joins() -> None:
    """The core would not know it. The other devices of its machine are lost with it."""
    run: Any = SimpleNamespace(coming=[], leaving=[], stays_open=False)
    turnover = LogTurnover(run, ())
    two = tuple(cast(Any, SimpleNamespace(name=name)) for name in ("n1/cuda:0", "n1/cuda:1"))
    run.coming.append(JoiningDevices(two, {}, lambda: None))
    assert not turnover.never_joins("n0/cuda:0"), "it is one of the run"
    assert turnover.never_joins("n1/cuda:1")
    assert turnover.opening(1.0) is None, "there is no reason for a segment any more"


def test_a_timer_that_follows_from_the_opening_is_of_the_new_segment(tmp_path: Path) -> None:
    """The driver drops timers of earlier segments. It carries out the commands of the opening before `begun`."""
    core = SimpleNamespace(segment=Segment(lanes=((0, "n0/cpu"),), lanes_made=1), known=lambda _classes: {})
    arrivals = SimpleNamespace(names_to_come=(), sweeps={}, learn=lambda _change: None)
    device = replace(registry.find("cpu"), name="n0/cpu")
    plan = planned(load(job_file(tmp_path, slow_steps("j", 1, 1))), (device,), policy="fair")
    run = begun(plan, core, arrivals=arrivals, jobs={})
    turnover = LogTurnover(run, ())
    run.coming.append(JoiningDevices((replace(device, name="n1/cpu"),), {}, lambda: None))
    before = turnover.count
    opened = turnover.opening(1.0)
    assert opened is not None and [each.name for each in opened.devices] == ["n0/cpu", "n1/cpu"]
    assert turnover.count == before + 1


@pytest.mark.nightly
def test_a_machine_that_cannot_join_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_nodes, "_AGAIN_S", 0.2)
    looks: list[bool] = []

    def coming() -> list[str]:
        looks.append(True)
        if len(looks) == 1:
            raise ConnectionError("the engine is away")
        return ["n0", "n1"]

    done = run_on(
        tmp_path,
        [slow_steps("j", 600, 5)],
        ["n0"],
        coming=coming,
        variables=lambda name: {"PATH": "/nowhere", "PYTHONHOME": "/nowhere"} if name == "n1" else {},
        cold=True,
    )
    assert states(done) == {"j": ("completed", 600)}
    assert "machines that come are not seen: the engine is away" in done.notes
    (note,) = [each for each in done.notes if "n1" in each]
    assert note.startswith("the node n1 has come and cannot join: the node n1 is lost: its agent has ended with exit ")
