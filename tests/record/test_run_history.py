"""The history of a run: what one pass over its log tells of jobs, attempts, settings and windows."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import Measurement, MeasurementStatus
from ecoshare.base.service import ServiceSpec
from ecoshare.core.commands import ApplySetting, AskSampler, MeasureSetting, MoveJob, OpenLane, ProfileJob, StartJob
from ecoshare.core.events import (
    Config,
    Done,
    Exhausted,
    IterationsDone,
    JobArrived,
    JobExited,
    Profiled,
    Refused,
    Reported,
    RunOpened,
    SettingMeasured,
    StopRequested,
)
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.log_fold import LogEntry
from ecoshare.record.results.costs_and_savings import windows
from ecoshare.record.results.job_summary import job_state
from ecoshare.record.run_history import JobHistory, LaneMove, ProfilingSpan, RunHistory
from ecoshare.record.setting_history import SettingPeriod, setting_words
from tests.reporting.profiles import PROFILE

DEVICES = (Device("cuda:0", "local", 1 << 30), Device("cuda:1", "local", 1 << 30))
SLOW = (("gpu_clock", 1200.0),)


def opened(at_s: float) -> RunOpened:
    return RunOpened(at_s, 3, Config("fair"), DEVICES)


def started(at_s: float, command: int, attempt: int = 1) -> list[LogEntry]:
    """Job a arrives, and an attempt of it begins."""
    return [
        OpenLane(command - 1, 0, "cuda:0", 1 << 30),
        JobArrived(at_s, JobSpec("a", "c")),
        StartJob(command, "a", attempt, (0,), 1 << 29),
        Done(at_s + 1.0, command),
    ]


def used(iterations: int, peak_bytes: int = 0) -> Usage:
    return Usage(iterations=iterations, peak_bytes=peak_bytes)


def test_a_resumed_job_has_one_history_and_two_attempts() -> None:
    """The first attempt has no logged end. The second must not get its usage and reports."""
    first = [
        opened(0.0),
        *started(1.0, 2),
        IterationsDone(5.0, "a", used(7, 100)),
        Reported(6.0, "a", 1, 0.5),
        StopRequested(7.0, False),
    ]
    history = RunHistory([*first, opened(20.0), *started(21.0, 2, attempt=2), Reported(23.0, "a", 1, 0.25)])
    job, (cut_off, going) = history.jobs["a"], history.attempts
    assert (job.arrival_s, job.start_s, job.attempt, job.finish_s) == (1.0, 2.0, 2, None)
    assert (job.usage.iterations, job.reports) == (0, [(23.0, 0.25)])
    assert (cut_off.outcome, cut_off.ended_s, cut_off.peak_bytes) == (Outcome.LOST, 7.0, 100)
    assert (going.outcome, going.began_s, going.ended_s) == (None, 22.0, None)
    assert not history.is_stopped, "the run was resumed after it was stopped"


def test_an_end_that_the_log_lacks_counts_and_is_no_entry_of_it() -> None:
    history = RunHistory([opened(0.0), *started(1.0, 2)])
    count = len(history.entries)
    history.add_unlogged(JobExited(2.0, "a", 1, Outcome.COMPLETED, 0, "", used(9)))
    assert history.jobs["a"].usage.iterations == 9 and history.attempts[0].completed
    assert len(history.entries) == count and len(history.unlogged) == 1


def test_a_refused_start_ends_its_attempt() -> None:
    entries = [*started(1.0, 2)[:3], Refused(3.0, 2, "no room")]
    (attempt,) = RunHistory([opened(0.0), *entries]).attempts
    assert attempt.was_refused and (attempt.ended_s, attempt.reason) == (3.0, "no room")


def test_an_answer_belongs_to_the_command_of_its_session() -> None:
    """Commands are numbered anew: number 9 of the first session is another command than number 9 of the second."""
    move, sampler = MoveJob(9, "a", 1, 1), AskSampler(9, "s", 0)
    history = RunHistory([opened(0.0), *started(1.0, 2), move, Done(3.0, 9), opened(5.0), sampler, Exhausted(6.0, 9)])
    assert history.moves(history.attempts[0]) == [LaneMove(3.0, 1)]
    assert history.exhausted == {"s": ""}


def applied(command: int, device: str, at_s: float) -> list[LogEntry]:
    return [ApplySetting(command, device, SLOW), Done(at_s, command)]


def test_a_measurement_counts_for_its_own_device() -> None:
    """Two devices with equal settings each got the measurements of both."""
    measured = Measurement(SLOW, MeasurementStatus.MEASURED)
    entries = [
        opened(0.0),
        *started(1.0, 2),
        *applied(5, "cuda:0", 3.0),
        *applied(6, "cuda:1", 4.0),
        MeasureSetting(7, "cuda:1", ("a",), SLOW),
        SettingMeasured(9.0, 7, measured),
    ]
    periods = RunHistory(entries).settings
    assert [(each.device, each.trials) for each in periods] == [("cuda:0", 0), ("cuda:1", 1)]


def test_a_refused_return_to_the_default_is_told_in_words_and_the_setting_stays() -> None:
    entries = [opened(0.0), *applied(5, "cuda:0", 3.0), ApplySetting(6, "cuda:0", ()), Refused(8.0, 6, "not permitted")]
    slow, refused = RunHistory(entries).settings
    assert (slow.to_s, refused) == (None, SettingPeriod("cuda:0", {}, 8.0, error="not permitted"))
    assert setting_words(refused) == "cuda:0: back to the default; refused at 8 s: not permitted"


def test_a_setting_ends_with_its_session() -> None:
    """The table of a resumed run said that it was in force until the end of the run."""
    cut_off = [opened(0.0), *started(1.0, 2), *applied(5, "cuda:0", 3.0), IterationsDone(7.0, "a", used(7))]
    history = RunHistory([*cut_off, opened(20.0), *started(21.0, 2, attempt=2), *applied(5, "cuda:0", 24.0)])
    assert [(each.from_s, each.to_s) for each in history.settings] == [(3.0, 7.0), (24.0, None)]
    assert setting_words(history.settings[0]) == "cuda:0: gpu_clock 1200; from 3 s to 7 s"


def test_a_profile_tells_the_cost_of_the_window_that_made_it_alone() -> None:
    """The second window of a class replaces its profile: the cost of the first was computed from the second."""
    spans = [ProfilingSpan("a", 0.0, 40.0), ProfilingSpan("a", 50.0, 60.0), ProfilingSpan("a", 70.0, 75.0, "it ended")]
    first, second, failed = windows(spans, {"a": "c"}, {"c": PROFILE}, RunEnergy())
    assert first.lost_s is first.paused_jobs is failed.lost_s is None
    assert second.lost_s is not None and second.paused_jobs == PROFILE.window.paused_jobs
    assert (first.error, failed.error) == (None, "it ended")


def test_windows_are_in_the_order_of_their_ends() -> None:
    entries = [opened(0.0), *started(1.0, 2), ProfileJob(5, "a", 1), ProfileJob(6, "a", 1), Profiled(9.0, 6, None)]
    assert RunHistory(entries).windows == [
        ProfilingSpan("a", 2.0, 9.0, device="cuda:0"),
        ProfilingSpan("a", 2.0, device="cuda:0"),
    ]


@pytest.mark.parametrize(("longest_s", "is_refused"), [(None, False), (0.05, False), (0.06, True)])
def test_a_service_that_is_too_slow_by_itself_could_not_start(longest_s: float | None, is_refused: bool) -> None:
    """Before, it was told as stopped by the user, with no numbers."""
    spec = JobSpec("s", "c", service=ServiceSpec(0.05), solo=Solo(longest_s=longest_s))
    history = RunHistory([JobArrived(0.0, spec)])
    why = "its answers take up to 60 ms alone, and its target is 50 ms" if is_refused else ""
    assert history.unplaceable(history.jobs["s"]) == why
    assert job_state(history.jobs["s"], False, False, bool(why)) == ("failed" if is_refused else "cancelled")


def test_a_trial_that_early_stopping_has_asked_to_end_is_pruned() -> None:
    """So it is without its exit, which a kill may have cut off, and after a stop that came later."""
    job = JobHistory("t", JobSpec("t", "c", sweep="s", movable=True))
    job.asked(StartJob(1, "t", 1, (0,), 0, False))
    job.reports.append((1.0, 0.5))
    job.asked_to_end(pruned=True)
    assert job_state(job, stopped=False, live=False) == "pruned"
    job.exited(JobExited(2.0, "t", 1, Outcome.STOPPED, 143, "stopped", Usage()))
    assert job_state(job, stopped=True, live=False) == "pruned" and job.asked_to_end_at == 1
    job.asked(StartJob(2, "t", 2, (0,), 0, False))
    assert not job.is_pruned and job.earlier_reports == 1, "it failed meanwhile, and was tried again"


def test_a_trial_that_pauses_waits_while_the_run_goes_on() -> None:
    job = JobHistory("t", JobSpec("t", "c", sweep="s", movable=True))
    job.asked(StartJob(1, "t", 1, (0,), 0, False))
    job.asked_to_end(pruned=False)
    job.exited(JobExited(2.0, "t", 1, Outcome.STOPPED, 143, "pauses", Usage()))
    assert job_state(job, stopped=False, live=True) == "queued"
    job.dropped("place 2 of 2", 3.0, pruned=True)
    assert job_state(job, stopped=False, live=True) == "pruned"
    job.dropped("a service keeps it out of every lane", 3.0)
    assert not job.is_pruned
