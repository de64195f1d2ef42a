"""Machines without a job are given back while a run goes on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from ecoshare.base.segment import Segment
from ecoshare.core.events import RunOpened
from ecoshare.devices import registry
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.load import load
from ecoshare.record import event_log, run_documents
from ecoshare.runtime.log_turnover import LogTurnover
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.run_node import LeavingDevices
from ecoshare.runtime.run import Run
from tests.cluster.agents import check_alike, members, run_on, states
from tests.planning import begun, planned
from tests.runtime.running import job_file, slow_steps


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_machine_without_a_job_is_given_back_and_the_other_job_goes_on(tmp_path: Path) -> None:
    log, left = tmp_path / "runs" / "latest" / "events.jsonl", list[tuple[str, list[int]]]()

    def given_back(name: str) -> None:
        token = run_documents.read_environment(log.parent / "environment.json")["nodes"][name]["token"]
        left.append((name, cleanup.members(token)))

    jobs = [slow_steps("long", 1200, 5), slow_steps("short", 60, 5)]
    done = run_on(tmp_path, jobs, idle_s=2.0, given_back=given_back)
    assert left == [("n1", [])], "its agent has ended by then, and all that it had started"
    assert states(done) == {"long": ("completed", 1200), "short": ("completed", 60)}
    check_alike(done.folder.path, ["long"], 1200, 5)
    entries = list(event_log.read(done.folder.events))
    openings = [each for each in entries if isinstance(each, RunOpened)]
    assert [[device.name for device in each.devices] for each in openings] == [["n0/cpu", "n1/cpu"], ["n0/cpu"]]
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    assert any(note.startswith("the node n1 was given back at ") for note in done.notes)
    first, second = done.data.summary.devices
    assert not first.failed and not second.failed
    assert first.energy is not None and second.energy is not None
    assert first.energy.value_j > second.energy.value_j > 0.0
    assert not second.energy.faults, second.energy
    assert not members(done.folder.path)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_an_engine_that_takes_nothing_back_is_named(tmp_path: Path) -> None:
    def refuses(name: str) -> None:
        raise UnfitEnvironment(f"scontrol: {name} stays")

    jobs = [slow_steps("long", 500, 5), slow_steps("short", 60, 5)]
    done = run_on(tmp_path, jobs, idle_s=1.0, given_back=refuses)
    assert states(done) == {"long": ("completed", 500), "short": ("completed", 60)}
    words = "the node n1 is not used any more, and could not be given back: scontrol: n1 stays"
    assert words in done.notes


def idle_run(folder: Path, to_come: tuple[str, ...] = ()) -> Run:
    """Run on n0 and n1 without a job."""
    lanes = ((0, "n0/cpu"), (1, "n1/cpu"))
    core = SimpleNamespace(segment=Segment(lanes=lanes, lanes_made=2), known=lambda _classes: {})
    arrivals = SimpleNamespace(names_to_come=to_come, sweeps={}, learn=lambda _change: None)
    devices = [replace(registry.find("cpu"), name=name) for _, name in lanes]
    plan = planned(load(job_file(folder, slow_steps("j", 1, 1))), tuple(devices), policy="fair")
    return begun(plan, core, arrivals=arrivals, jobs={})


def test_a_machine_leaves_once_however_often_it_is_asked(tmp_path: Path) -> None:
    left = list[str]()
    run = idle_run(tmp_path)
    turnover = LogTurnover(run, ())
    for name in ("n1", "n1", "n0"):
        run.leave(LeavingDevices(frozenset({f"{name}/cpu"}), partial(left.append, name)))
    opened = turnover.opening(1.0)
    assert opened is not None and [device.name for device in opened.devices] == ["n0/cpu"], "one stays"
    turnover.begun()
    assert left == ["n1"] and turnover.opening(2.0) is None


def test_devices_leave_neither_before_they_are_used_nor_while_a_job_is_to_come(tmp_path: Path) -> None:
    left = list[str]()
    for to_come, device in (((), "n2/cpu"), (("late",), "n1/cpu")):
        run = idle_run(tmp_path, to_come)
        run.leave(LeavingDevices(frozenset({device}), partial(left.append, device)))
        assert LogTurnover(run, ()).opening(1.0) is None and not left
