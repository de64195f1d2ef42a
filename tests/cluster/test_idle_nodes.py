"""Machines without a job are given back while a run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.core.events import JobArrived, JobExited, RunOpened
from ecoshare.errors import UnfitEnvironment
from ecoshare.record import event_log, run_documents
from ecoshare.runtime import reaping
from tests.cluster.agents import check_alike, members, run_on, states
from tests.runtime.running import slow_steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_machine_without_a_job_is_given_back_and_the_other_job_goes_on(tmp_path: Path) -> None:
    log, left = tmp_path / "runs" / "latest" / "events.jsonl", list[tuple[str, list[int]]]()

    def given_back(name: str) -> None:
        token = run_documents.read_environment(log.parent / "environment.json")["nodes"][name]["token"]
        left.append((name, reaping.members(token)))

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


def test_no_machine_is_given_back_while_a_job_is_still_to_come(tmp_path: Path) -> None:
    late = slow_steps("late", 30, 5, arrival="6 s")
    done = run_on(tmp_path, [slow_steps("long", 1200, 5), late], idle_s=0.5, given_back=lambda _name: None)
    assert states(done) == {"long": ("completed", 1200), "late": ("completed", 30)}
    told = [each for each in event_log.read(done.folder.events) if isinstance(each, JobArrived | JobExited | RunOpened)]
    kinds = [(type(each), each.job if isinstance(each, JobExited) else "") for each in told]
    assert kinds == [
        (RunOpened, ""),
        (JobArrived, ""),
        (JobArrived, ""),
        (JobExited, "late"),
        (RunOpened, ""),
        (JobExited, "long"),
    ]


def test_an_engine_that_takes_nothing_back_is_named(tmp_path: Path) -> None:
    def refuses(name: str) -> None:
        raise UnfitEnvironment(f"scontrol: {name} stays")

    jobs = [slow_steps("long", 500, 5), slow_steps("short", 60, 5)]
    done = run_on(tmp_path, jobs, idle_s=1.0, given_back=refuses)
    assert states(done) == {"long": ("completed", 500), "short": ("completed", 60)}
    words = "the node n1 is not used any more, and could not be given back: scontrol: n1 stays"
    assert words in done.notes
