"""Counts over a session of a queue, from events and commands as the core gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import Measurement, MeasurementStatus
from ecoshare.base.service import ServiceSpec
from ecoshare.core.commands import ApplySetting, AskSetting, Command, MeasureSetting, StartJob
from ecoshare.core.events import (
    Done,
    Event,
    JobArrived,
    JobExited,
    Parked,
    Profiled,
    Refused,
    SettingAdvised,
    SettingMeasured,
    TargetMissed,
)
from ecoshare.core.records import Job, JobState
from ecoshare.metrics import families
from ecoshare.queue.queue_totals import QueueTotals


class Session:
    """Totals of a queue with two lanes, one for each device."""

    def __init__(self) -> None:
        self.totals = QueueTotals()
        lanes = {number: SimpleNamespace(device=SimpleNamespace(name=f"cuda:{number}")) for number in (0, 1)}
        self.core = cast(Any, SimpleNamespace(jobs={}, lanes=lanes, ended=[]))

    def arrive(self, name: str, **more: Any) -> Job:
        job = self.core.jobs[name] = Job(JobSpec(name, "c", **more), 0.0)
        self.look(JobArrived(0.0, job.spec), StartJob(1, name, 1, (0,), 0))
        return job

    def look(self, event: Event, *commands: Command, ended: tuple[Job, ...] = ()) -> None:
        self.core.ended = list(ended)
        self.totals.look(event, commands, self.core)

    def exit(self, job: Job, state: JobState, *commands: Command, outcome: Outcome = Outcome.CRASHED) -> None:
        """An attempt with 10 iterations ends, and the job is in a state then."""
        job.state = state
        over = JobExited(1.0, job.spec.name, 1, outcome, 1, "", Usage(iterations=10, held_s=2.0))
        self.look(over, *commands, ended=(job,) if state.ended else ())

    def count(self, family: families.MetricFamily, *labels: str) -> int:
        return self.totals.counts[family, labels]


def test_work_counts_on_the_devices_of_its_attempt_and_a_job_is_forgotten_at_its_end() -> None:
    session = Session()
    job = session.arrive("a")
    session.exit(job, JobState.STARTING, StartJob(2, "a", 2, (0, 1), 0))  # begun again at once, on both devices
    assert session.totals.earlier["a"].iterations == 10
    session.exit(job, JobState.FAILED, outcome=Outcome.OUT_OF_MEMORY)
    assert {name: work.iterations for name, work in session.totals.ended_work.items()} == {"cuda:0": 20, "cuda:1": 10}
    assert session.count(families.RESTARTS, "crashed") == 1 and session.count(families.RESTARTS, "out_of_memory") == 0
    assert session.count(families.ATTEMPTS_ENDED, "out_of_memory") == 1
    assert not (session.totals.live or session.totals.earlier or session.totals.devices_of)


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.COMPLETED, JobState.CANCELLED])
def test_a_pause_at_a_rung_and_an_end_are_no_restarts(state: JobState) -> None:
    session = Session()
    session.exit(session.arrive("a", sweep="s"), state)
    assert all(session.count(families.RESTARTS, each.value.replace(" ", "_")) == 0 for each in Outcome)
    assert session.count(families.JOBS_ENDED, "trial", state.value) == int(state.ended)


def test_searches_begin_with_a_question_without_a_measurement_and_end_with_a_result() -> None:
    session, found = Session(), Measurement((), MeasurementStatus.MEASURED)
    session.look(Parked(0.0, 9, Usage(), 0.1), AskSetting(1, "tuner", "cuda:1", (("c",),), None))
    session.look(SettingAdvised(1.0, 1, (("power_limit", 500.0),)), ApplySetting(2, "cuda:1", ()))
    session.look(Done(2.0, 2), MeasureSetting(3, "cuda:1", ("a",), ()))
    session.look(SettingMeasured(3.0, 3, found), AskSetting(4, "tuner", "cuda:1", (("c",),), found))
    assert session.count(families.SEARCHES_ENDED, "cuda:1") == 0
    session.look(SettingAdvised(4.0, 4, (), over=True), ApplySetting(5, "cuda:1", ()))
    session.look(Refused(5.0, 5, "no permission"))
    session.look(Done(6.0, 77))  # no setting has this command
    assert session.count(families.SEARCHES_BEGUN, "cuda:1") == session.count(families.SEARCHES_ENDED, "cuda:1") == 1
    assert session.count(families.SETTING_MEASUREMENTS, "cuda:1", "measured") == 1
    assert session.count(families.SETTING_CHANGES, "cuda:1", "applied") == 1
    assert session.count(families.SETTING_CHANGES, "cuda:1", "refused") == 1
    assert session.count(families.PARKS) == 1


def test_windows_and_missed_targets_are_counted() -> None:
    session = Session()
    job = session.arrive("s", service=ServiceSpec(0.05))
    session.look(Profiled(1.0, 1, None, error="the job ended before its window"))
    session.look(Profiled(2.0, 2, None))
    session.look(TargetMissed(61.0, "s", 100, 5))
    session.look(TargetMissed(121.0, "s", 100, 5))
    assert session.count(families.WINDOWS, "failed") == session.count(families.WINDOWS, "profiled") == 1
    assert session.totals.missed_minutes["s"] == 2
    session.exit(job, JobState.COMPLETED)
    assert session.totals.missed_minutes["s"] == 0
