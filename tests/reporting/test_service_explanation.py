"""Explanations of runs in which services take part, from logs of the real core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.attempt import Usage
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.commands import Command, MoveJob, StartJob
from ecoshare.core.events import Config, Event, IterationsDone, TargetMissed
from ecoshare.core.reasons import Doing, Reason
from ecoshare.core.scheduler import Scheduler
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.explanation import explain
from ecoshare.reporting.explanation_text import of_job, of_run, show
from ecoshare.reporting.reason_words import reason_words
from tests.reporting.made_run import run
from tests.reporting.made_service import interval, with_service
from tests.reporting.recorded import Entries, entries_of, plan, write
from tests.simulation.test_packs import job, world

SERVES = ServiceSpec(0.05, requests=RequestSource(rate_per_s=3.0, count=10))
JOBS = [replace(job("anna", "a", 200.0), service=SERVES), job("bert", "b", 150.0), job("carl", "c", 100.0)]


@pytest.fixture(scope="module")
def entries() -> Entries:
    return entries_of(JOBS, world(ab=0.9, ac=0.8, bc=0.8), Config("energy", 1, 4))


def test_a_job_beside_a_service_is_told_so_without_speeds(
    entries: Entries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An expected speed counts a service as if it worked all the time."""
    folder = write(tmp_path / "run", plan(JOBS, Config("energy", 1, 4)), entries)
    show(folder, None, as_json=False)
    whole = capsys.readouterr().out
    show(folder, "anna", as_json=False)
    anna = capsys.readouterr().out
    show(folder, "carl", as_json=False)
    carl = capsys.readouterr().out
    assert "carl beside the service anna" in whole and "answered its requests beside carl" in anna
    assert "shared with anna, which has the turn only for requests" in carl
    assert "expected at" not in whole + anna + carl


@pytest.mark.parametrize(
    ("job", "beside", "words"),
    [
        ("bert", ("carl", "anna"), "shared with carl, and with anna, which has the turn only for requests"),
        ("bert", ("anna", "dora"), "shared with anna and dora, which have the turn only for requests"),
        ("anna", ("bert", "dora"), "answered its requests beside bert and dora"),
        ("bert", ("carl",), "ran beside carl: expected at 0.90 and 0.80 of their speeds alone"),
    ],
)
def test_the_words_tell_services_from_other_jobs(job: str, beside: tuple[str, ...], words: str) -> None:
    reason = Reason(Doing.SHARES, "cpu", beside, speeds=(0.9, 0.8))
    assert reason_words(job, reason, "energy", {"anna", "dora"}) == words


def played(entries: Entries, *more: Event) -> list[Event | Command]:
    """Log of the same events up to the start of all jobs, and then of `more`."""
    core, log = Scheduler(), list[Event | Command]()
    events = [each for each in entries if not isinstance(each, Command)]
    for event in [*(each for each in events if each.at_s < 1.0), *more]:
        log += [event, *core.handle(event)]
    return log


def test_a_missed_target_is_told_of_the_service_and_of_the_job_that_moves_away() -> None:
    never_cut = [each if each.service is not None else replace(each, speedups=(1.0,)) for each in JOBS]
    entries = entries_of(never_cut, world(ab=0.9, ac=0.8, bc=0.8), Config("fair", 2, 4))
    lanes = {each.job: each.lanes for each in entries if isinstance(each, StartJob)}
    (mate,) = [name for name in lanes if name != "anna" and lanes[name] == lanes["anna"]]
    slow = Usage(iterations=60, held_s=40.0, longest_iteration_s=0.4)
    log = played(entries, IterationsDone(40.0, mate, slow), TargetMissed(60.0, "anna", 100, 9))
    (move,) = [each for each in log if isinstance(each, MoveJob)]
    explained = explain(RunHistory(log))
    assert explained.differs_s is None
    late = "missed its target for a minute: 9 of 100 requests were late, failed or were refused"
    assert (60.0, late) in explained.stories["anna"].remarks
    away = f"moves to lane {move.lane}, since anna missed its target beside it"
    assert (60.0, away) in explained.stories[mate].remarks


def test_the_heading_of_a_service_has_its_answers_and_its_target(entries: Entries) -> None:
    summary = with_service(run(jobs=1), [interval(20.0, [0.01] * 3 + [0.08], refused=2)]).summary
    summary = replace(summary, jobs=(replace(summary.jobs[0], name="anna"),))
    explained = explain(RunHistory(entries))
    for lines in (of_run(explained, summary), of_job(explained, summary, "anna")):
        assert any("answered 3 of 6 requests in time: p99 80.1 ms, target 50 ms" in line for line in lines)
