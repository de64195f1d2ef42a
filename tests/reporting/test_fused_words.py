"""Messages about `isolation: lane` at the end of a run."""

from __future__ import annotations

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import Solo
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, StartJob
from ecoshare.core.events import Event, JobArrived, JobExited, Refused
from ecoshare.record.plan_document import JobDocument
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.plan_text import asked_for, fused_words
from tests.record.test_summary import plan_of


def log(fused: list[bool | None], lanes: int = 2, moved: tuple[int, ...] = ()) -> list[Event | Command]:
    """Log of jobs of one script, by whether each is started in a shared process; None if it must not be."""
    entries: list[Event | Command] = []
    for number, shares in enumerate(fused):
        name = f"t.{number:04d}"
        spec = JobSpec(name, "t-0123", solo=Solo("/t.py"), fused=shares is not None)
        entries.append(JobArrived(at_s=0.0, job=spec))
        entries.append(StartJob(10 + number, name, 1, (number % lanes,), 1, bool(shares)))
        outcome = Outcome.MOVED_OUT if number in moved else Outcome.COMPLETED
        entries.append(JobExited(1.0, name, 1, outcome, 0, "it handles signals", Usage()))
        if number in moved:
            entries.append(StartJob(100 + number, name, 2, (0,), 1, False))
            entries.append(JobExited(2.0, name, 2, Outcome.COMPLETED, 0, "", Usage()))
    return entries


def test_nothing_is_said_where_it_was_not_asked_for() -> None:
    assert fused_words(RunHistory(log([None, None]))) == []
    assert fused_words(RunHistory()) == []


def test_jobs_and_their_processes_are_counted() -> None:
    assert fused_words(RunHistory(log([True] * 12))) == ["isolation lane: 12 jobs ran in 2 shared processes"]
    assert fused_words(RunHistory(log([False, *[True] * 4], lanes=1))) == [
        "isolation lane: 4 jobs ran in 1 shared process, 1 in a process of its own (until their memory was known)"
    ]


def test_a_job_that_was_moved_out_is_named_with_the_reason() -> None:
    first, second = fused_words(RunHistory(log([True, True, False], lanes=1, moved=(1,))))
    assert first.startswith("isolation lane: 1 job ran in 1 shared process, 1 in a process of its own")
    assert second == "moved out to a process of its own: t.0001: it handles signals"
    assert fused_words(RunHistory(log([True] * 9, moved=tuple(range(1, 9)))))[-1] == "5 more jobs moved out"


def test_a_start_that_was_refused_is_none() -> None:
    entries = log([True, True], lanes=1)
    entries[2] = Refused(0.5, command=10, error="no room")
    assert fused_words(RunHistory(entries)) == ["isolation lane: 1 job ran in 1 shared process"]


def test_a_plan_names_the_jobs_that_may_share() -> None:
    ways = {"a": "process", "s": "lane"}
    jobs = [JobDocument(name=name, job_class="c", slowdown_limit=None, isolation=way) for name, way in ways.items()]
    assert asked_for(plan_of(jobs)) == "s"
