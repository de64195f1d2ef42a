"""Counts over a session of a queue, which only grow: of ends, attempts, windows, searches and changes of settings.

The core and the log have all of it as well, but no sums, and a sum over all jobs takes longer the more there were. The
counts of one job stay until the job ends, since its attempts are counted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.measurement import MeasurementStatus
from ecoshare.core.commands import ApplySetting, AskSetting, Command, MeasureSetting, StartJob
from ecoshare.core.events import (
    Done,
    Event,
    JobArrived,
    JobExited,
    Parked,
    Profiled,
    Refused,
    RunOpened,
    SettingAdvised,
    SettingMeasured,
    TargetMissed,
)
from ecoshare.core.records import Job, JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.metrics.families import (
    ATTEMPTS_ENDED,
    JOBS_ENDED,
    PARKS,
    RESTARTS,
    SEARCHES_BEGUN,
    SEARCHES_ENDED,
    SETTING_CHANGES,
    SETTING_MEASUREMENTS,
    WINDOWS,
    MetricFamily,
)
from ecoshare.record.log_fold import LogFold


@dataclass(slots=True)
class WorkDone:
    """Work of several attempts.

    Attributes:
        iterations: Number of training iterations.
        eval_iterations: Number of inference iterations.
        held_s: Time (s) with the turn.
        waited_s: Time (s) of waiting for the turn.
    """

    iterations: int = 0
    eval_iterations: int = 0
    held_s: float = 0.0
    waited_s: float = 0.0

    def add(self, usage: Usage) -> None:
        """Add what an attempt has done."""
        self.iterations += usage.iterations
        self.eval_iterations += usage.eval_iterations
        self.held_s += usage.held_s
        self.waited_s += usage.waited_s


class QueueTotals:
    """Counts of a queue.

    Attributes:
        counts: Number of things by metric and the values of its labels.
        live: Jobs that have arrived and not ended, by name.
        earlier: Work of the earlier attempts of each live job that has any.
        missed_minutes: Minutes in which each live service missed its target.
        ended_work: Work of all ended attempts, by device.
        devices_of: Devices of the present or last attempt of each live job.
    """

    def __init__(self) -> None:
        """Nothing has happened. Counts without a device begin at 0, so that Prometheus sees their first rise."""
        self.counts: Counter[tuple[MetricFamily, tuple[str, ...]]] = Counter()
        self.live: dict[str, Job] = {}
        self.earlier: dict[str, WorkDone] = {}
        self.missed_minutes: Counter[str] = Counter()
        self.ended_work: dict[str, WorkDone] = {}
        self.devices_of: dict[str, tuple[str, ...]] = {}
        self._core = Scheduler()
        self._fold = LogFold(self)
        for outcome in Outcome:
            self._count(ATTEMPTS_ENDED, _label(outcome.value), by=0)
            if not outcome.is_the_end:
                self._count(RESTARTS, _label(outcome.value), by=0)
        for kind in ("job", "sweep", "trial"):
            for state in JobState:
                if state.ended and (state is not JobState.PRUNED or kind == "trial"):
                    self._count(JOBS_ENDED, kind, state.value, by=0)
        for result in ("profiled", "failed"):
            self._count(WINDOWS, result, by=0)
        self._count(PARKS, by=0)

    def expect_settings(self, device: str) -> None:
        """Count from 0 what concerns the settings of a device."""
        for result in ("applied", "refused"):
            self._count(SETTING_CHANGES, device, result, by=0)
        for status in MeasurementStatus:
            self._count(SETTING_MEASUREMENTS, device, status.value, by=0)
        for family in (SEARCHES_BEGUN, SEARCHES_ENDED):
            self._count(family, device, by=0)

    def look(self, event: Event, commands: Sequence[Command], core: Scheduler) -> None:
        """Count what has happened with an event, and with the commands that followed."""
        self._core = core
        for entry in (event, *commands):
            self._fold.take(entry)
        for job in core.ended:
            if job.spec.sweep and not job.resumable:
                self._count(JOBS_ENDED, "trial", job.state.value)
            for kept in (self.live, self.earlier, self.missed_minutes, self.devices_of):
                kept.pop(job.spec.name, None)

    def ended(self, states: Iterable[tuple[str, str]]) -> None:
        """Count final ends of jobs and sweeps, each as its kind (`job`, `sweep`) and its state."""
        for kind, state in states:
            self._count(JOBS_ENDED, kind, state)

    def on_run_opened(self, _event: RunOpened) -> None:
        self.live = dict(self._core.jobs)  # a segment of the log makes them anew

    def on_job_arrived(self, event: JobArrived) -> None:
        self.live[event.job.name] = self._core.jobs[event.job.name]

    def on_start_job(self, command: StartJob, _at_s: float) -> None:
        self.devices_of[command.job] = tuple(self._core.lanes[lane].device.name for lane in command.lanes)

    def on_job_exited(self, event: JobExited) -> None:
        outcome, job = _label(event.outcome.value), self._core.jobs[event.job]
        self._count(ATTEMPTS_ENDED, outcome)
        if not job.state.ended and job.state is not JobState.PAUSED:
            self._count(RESTARTS, outcome)
        self.earlier.setdefault(event.job, WorkDone()).add(event.usage)
        for device in self.devices_of.get(event.job, ()):
            self.ended_work.setdefault(device, WorkDone()).add(event.usage)

    def on_parked(self, _event: Parked, _command: Command | None) -> None:
        self._count(PARKS)

    def on_profiled(self, event: Profiled, _command: Command | None) -> None:
        self._count(WINDOWS, "failed" if event.error else "profiled")

    def on_target_missed(self, event: TargetMissed) -> None:
        self.missed_minutes[event.job] += 1

    def on_done(self, _event: Done, command: Command | None) -> None:
        if isinstance(command, ApplySetting):
            self._count(SETTING_CHANGES, command.device, "applied")

    def on_refused(self, _event: Refused, command: Command | None) -> None:
        if isinstance(command, ApplySetting):
            self._count(SETTING_CHANGES, command.device, "refused")

    def on_ask_setting(self, command: AskSetting, _at_s: float) -> None:
        if command.measurement is None:
            self._count(SEARCHES_BEGUN, command.device)

    def on_setting_advised(self, event: SettingAdvised, command: Command | None) -> None:
        if event.over and isinstance(command, AskSetting):
            self._count(SEARCHES_ENDED, command.device)

    def on_setting_measured(self, event: SettingMeasured, command: Command | None) -> None:
        if isinstance(command, MeasureSetting):
            self._count(SETTING_MEASUREMENTS, command.device, event.measurement.status.value)

    def _count(self, family: MetricFamily, *labels: str, by: int = 1) -> None:
        self.counts[family, labels] += by


def _label(words: str) -> str:
    return words.replace(" ", "_")
