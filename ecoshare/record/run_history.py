"""Typed history of a run, made in one pass over its log.

::

    events.jsonl ──► RunHistory ──► summary, resume, exports, explanations, charts
                       jobs, attempts, lanes, sweeps, settings, windows     in the pass
                       packings()                                           when they are asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ecoshare.base.attempt import WORK_OVER, Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.plural import counted
from ecoshare.base.segment import CarriedJob, Segment
from ecoshare.core.commands import (
    ApplySetting,
    AskSampler,
    Command,
    DropJob,
    KillJob,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ParkJob,
    ProfileJob,
    ResumeJob,
    StartJob,
)
from ecoshare.core.events import (
    CancelRequested,
    DeviceFailed,
    Done,
    DrainRequested,
    Event,
    Exhausted,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    PriorityChanged,
    Profiled,
    Refused,
    Reported,
    Resumed,
    RetryRequested,
    RunOpened,
    SettingMeasured,
    SliceChanged,
    StopRequested,
    TargetMissed,
)
from ecoshare.core.placement.limits import too_slow
from ecoshare.core.settings.service_targets import Missed
from ecoshare.jobs.quantities import format_duration
from ecoshare.record.log_fold import LogEntry, LogFold
from ecoshare.record.packing_timeline import PackingTimeline, packing_timeline
from ecoshare.record.setting_history import BudgetRecord, BudgetSummary, SettingHistory, SettingPeriod


@dataclass(slots=True)
class AttemptHistory:
    """Attempt of a job.

    Attributes:
        asked_s: Time (s) at which the scheduler decided to start the attempt.
        began_s: Time (s) at which its first process existed; None if there was none yet.
        ended_s: Time (s) of its end; None while it runs.
        outcome: Outcome of the attempt; None while it runs.
        peak_bytes: Largest memory (bytes) seen so far; None if none was seen.
        was_refused: Whether the attempt could not be started.
    """

    job: str
    number: int
    lanes: tuple[int, ...]
    asked_s: float
    began_s: float | None = None
    ended_s: float | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    reason: str = ""
    peak_bytes: int | None = None
    was_refused: bool = False

    @property
    def completed(self) -> bool:
        """Whether the attempt completed its work."""
        return self.outcome is Outcome.COMPLETED

    @property
    def ended_badly(self) -> bool:
        """Whether the attempt ended without success. A service that served until all other jobs had ended did well."""
        if self.outcome is None or self.outcome.is_the_end:
            return False
        return self.reason != WORK_OVER


@dataclass(slots=True)
class ParkedSpan:
    """Time for which an attempt was parked, without the time that its memory took to move there.

    Attributes:
        to_s: Time (s) at which its memory was back, or at which the attempt ended; None while it is parked.
    """

    attempt: int
    from_s: float
    to_s: float | None = None


def split_by_parking(spans: Iterable[ParkedSpan], from_s: float, to_s: float) -> Iterator[tuple[float, float, bool]]:
    """Parts of a time of one attempt, in order: begin and end (s), and whether the attempt was parked."""
    for each in spans:
        if from_s <= each.from_s < to_s:
            yield from_s, each.from_s, False
            from_s = to_s if each.to_s is None else min(to_s, each.to_s)
            yield each.from_s, from_s, True
    if from_s < to_s:
        yield from_s, to_s, False


@dataclass(slots=True)
class JobHistory:
    """History of one job. A resumed run has one history for each job, over all its sessions.

    ::

        StartJob ──► Done            ──►  JobExited          an attempt, from the log
                 ▲           ▲ begins ▲ ends  ▲ begins       its turns, from its trace
                 asked_s     ├ train ─┤       ├ eval ─┤ …    iterations: each lasts from the previous mark to its own

    Attributes:
        spec: Specification with which the job arrived last; None before it arrives.
        arrival_s: Time (s) of the first arrival; None before it.
        start_s: Time (s) at which the first process of the job existed; None before it.
        starts: Start command of each attempt, by number.
        exits: Logged end of each attempt, by number.
        attempt: Number of the last attempt; 0 before the first.
        lanes: Lanes of the last attempt.
        exit: End of the last attempt; None while it runs, if it was refused, and if it was cut off with the run.
        refusal: Reason why the last attempt could not be started; None if it could.
        finish_s: Time (s) at which the last attempt ended or was refused; None if it has not.
        usage: Usage of the last attempt, as last reported.
        told_bytes: Largest memory of any attempt that was reported while it ran; 0 if none was.
        reports: Time (s) and value of each report of the last attempt, after those of attempts that it goes on from.
        earlier_reports: Number of those that it goes on from.
        asked_to_end_at: Number of reports when it was last asked to end; None if it never was.
        is_pruned: Whether early stopping has ended it, or has asked it to end.
        parked: Times for which its attempts were parked, in order.
        cancelled: Reason why the user, or the end of another job, has cancelled the job; empty if neither has.
        forgiven: Number of its attempts when the user asked for it to be run again. Their ends count no more.
        carried: State of the job at the beginning of the log, if the log begins with a segment in which it goes on.
        missed: Time (s) at the end of each minute in which the service missed its target, and its requests.
    """

    name: str
    spec: JobSpec | None = None
    arrival_s: float | None = None
    start_s: float | None = None
    starts: dict[int, StartJob] = field(default_factory=dict)
    exits: dict[int, JobExited] = field(default_factory=dict)
    attempt: int = 0
    lanes: tuple[int, ...] = ()
    exit: JobExited | None = None
    refusal: str | None = None
    finish_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    told_bytes: int = 0
    reports: list[tuple[float, float]] = field(default_factory=list)
    earlier_reports: int = 0
    asked_to_end_at: int | None = None
    is_pruned: bool = False
    parked: list[ParkedSpan] = field(default_factory=list)
    cancelled: str = ""
    forgiven: int = 0
    carried: CarriedJob | None = None
    missed: list[tuple[float, Missed]] = field(default_factory=list)

    def arrived(self, spec: JobSpec, at_s: float) -> None:
        """Note an arrival; the job of a resumed run arrives again."""
        self.spec = spec
        self.arrival_s = at_s if self.arrival_s is None else self.arrival_s

    @property
    def widened(self) -> bool:
        """Whether an attempt had more devices than the job needs."""
        carried = () if self.carried is None else self.carried.lanes
        lanes = (carried, *(each.lanes for each in self.starts.values()))
        return self.spec is not None and any(len(each) > self.spec.gpus for each in lanes)

    @property
    def unknown_attempts(self) -> int:
        """Number of attempts that were over at the beginning of the log, so that it has no ends of them."""
        return 0 if self.carried is None else self.carried.attempt - self.carried.has_attempt

    def goes_on(self, carried: CarriedJob) -> None:
        """Note a job that goes on from an earlier segment, which the log has no more."""
        self.arrived(carried.spec, carried.arrival_s)
        self.carried, self.usage = carried, carried.usage
        self.start_s = None if carried.command is not None and carried.attempt == 1 else carried.first_start_s
        self.attempt, self.lanes = carried.attempt, carried.lanes

    def asked(self, command: StartJob) -> None:
        """Begin a new attempt, of which nothing is known yet."""
        self.attempt, self.lanes, self.starts[command.attempt] = command.attempt, command.lanes, command
        self.exit = self.refusal = self.finish_s = None
        self.usage, self.is_pruned = Usage(), False
        if self.spec is None or not self.spec.movable:
            self.reports = []
        self.earlier_reports = len(self.reports)

    def retried(self) -> None:
        """Note that the job has failed or was cancelled, and is to run again."""
        self.exit = self.refusal = self.finish_s = None
        self.cancelled, self.is_pruned, self.forgiven = "", False, self.attempt

    def began(self, at_s: float) -> None:
        """Note that a process of the job exists."""
        self.start_s = at_s if self.start_s is None else self.start_s

    def refused(self, error: str, at_s: float) -> None:
        """Note that the last attempt could not be started."""
        self.refusal, self.finish_s = error, at_s

    def dropped(self, reason: str, at_s: float, cancelled: bool = False, pruned: bool = False) -> None:
        """Note that the job never starts again. A trial that paused keeps the end of its last attempt."""
        if cancelled:
            self.exit, self.cancelled, self.finish_s = None, reason, at_s
        elif self.spec is None or not self.spec.sweep:
            self.exit, self.refusal, self.finish_s = None, reason, at_s
        self.is_pruned = pruned

    def asked_to_end(self, pruned: bool) -> None:
        """Note that an attempt is asked to end."""
        self.asked_to_end_at = len(self.reports)
        self.is_pruned = self.is_pruned or pruned

    def progressed(self, usage: Usage) -> None:
        """Note what the present attempt has used up to now."""
        self.usage, self.told_bytes = usage, max(self.told_bytes, usage.peak_bytes)

    def exited(self, event: JobExited) -> None:
        """Note the end of an attempt."""
        self.exits[event.attempt] = event
        self.resumed(event.at_s)
        self.exit, self.finish_s, self.usage = event, event.at_s, event.usage

    def was_parked(self, attempt: int, usage: Usage, at_s: float) -> None:
        """Note that an attempt is parked from now on."""
        self.usage = usage
        self.parked.append(ParkedSpan(attempt, at_s))

    def resumed(self, at_s: float) -> None:
        """Note that the job is not parked any more, if it was."""
        if self.parked and self.parked[-1].to_s is None:
            self.parked[-1].to_s = at_s

    def parked_s(self, end_s: float) -> float:
        """Time (s) for which the job was parked, over all attempts, up to `end_s`."""
        spans_s = ((end_s if each.to_s is None else each.to_s) - each.from_s for each in self.parked)
        return sum(spans_s, 0.0)


@dataclass(frozen=True, slots=True)
class OpenedLane:
    """Lane as it was opened."""

    number: int
    device: str
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """Failure of a device.

    Attributes:
        at_s: Time (s) at which it was seen.
        reason: Reason in words.
    """

    at_s: float
    reason: str

    @property
    def in_words(self) -> str:
        """Time and reason, such as `failed after 12 s: ...`."""
        return f"failed after {format_duration(self.at_s)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LaneMove:
    """Move of an attempt to another lane of its device.

    Attributes:
        at_s: Time (s) at which the attempt arrived there.
    """

    at_s: float
    lane: int


@dataclass(frozen=True, slots=True)
class ProfilingSpan:
    """Profiling window: a job was measured alone.

    Attributes:
        to_s: End (s) of the window; None if the log does not have it.
        error: Reason why the window gave no profile; empty if it gave one.
        device: Device that the job had to itself meanwhile.
    """

    job: str
    from_s: float
    to_s: float | None = None
    error: str = ""
    device: str = ""


class RunHistory:
    """History of a run, finished or not.

    Attributes:
        entries: Entries of the log, in order.
        unlogged: Ends and reports that the log lacks: the controller was killed before it wrote them.
        jobs: History of each job and trial, in the order of arrival.
        lanes: Lanes by number; in a resumed run, a lane is as it was last opened.
        devices: Devices by name, as last opened.
        failures: Failures by the name of the device. A session that uses the device again clears its failure.
        trials: Names of the trials of each sweep, in the order in which they were drawn.
        exhausted: Sweeps with an exhausted sampler, each with the sampler's error; empty without one.
        cancelled: Jobs and sweeps that were cancelled, each with the reason.
        is_stopped: Whether the user stopped the last session.
        down_s: Time (s) from the end of each session to the beginning of the next one; None in the first session.
    """

    def __init__(self, entries: Iterable[LogEntry] = ()) -> None:
        """History of the entries of a log, in order."""
        self.entries: list[LogEntry] = []
        self.unlogged: list[Event] = []
        self.jobs: dict[str, JobHistory] = {}
        self.lanes: dict[int, OpenedLane] = {}
        self.devices: dict[str, Device] = {}
        self.failures: dict[str, DeviceFailure] = {}
        self.trials: dict[str, list[str]] = {}
        self.exhausted: dict[str, str] = {}
        self.cancelled: dict[str, str] = {}
        self._windows: list[ProfilingSpan] = []
        self.is_stopped = False
        self.down_s: float | None = None
        self._away_s: float | None = None
        self._away_from_s: float | None = None
        self._attempts: dict[tuple[str, int], AttemptHistory] = {}
        self._moves: dict[tuple[str, int], list[LaneMove]] = {}
        self._going: dict[str, AttemptHistory] = {}
        self._settings, self._budget = SettingHistory(), BudgetRecord()
        self._open_windows: dict[int, ProfilingSpan] = {}
        self._timeline: PackingTimeline | None = None
        self._fold = LogFold(self)
        for entry in entries:
            self.entries.append(entry)
            self._fold.take(entry)

    @property
    def end_s(self) -> float:
        """Time (s) of the last event."""
        return self._fold.at_s

    @property
    def away_s(self) -> float | None:
        """Time (s) for which other runs of the machine had the devices; None if none shared them."""
        if self._away_s is None or self._away_from_s is None:
            return self._away_s
        return self._away_s + self.end_s - self._away_from_s

    def add_unlogged(self, event: Event) -> None:
        """Add an end or a report that the log lacks."""
        self.unlogged.append(event)
        self._fold.take(event)
        self._timeline = None

    def of(self, name: str) -> JobHistory:
        """History of a job of the run. A job that has not arrived has an empty one."""
        return self.jobs.get(name) or JobHistory(name, cancelled=self.cancelled.get(name, ""))

    def devices_of(self, lanes: Iterable[int]) -> tuple[str, ...]:
        """Names of the devices of lanes, each once."""
        return tuple(dict.fromkeys(self.lanes[lane].device for lane in lanes if lane in self.lanes))

    def unplaceable(self, job: JobHistory) -> str:
        """Reason in words why a job could not start: a power budget, its own answers, or failed devices; else empty."""
        if self._budget.refusal:
            return self._budget.refusal
        if job.spec is not None and not job.attempt and (reason := too_slow(job.spec)):
            return reason
        left = len(self.devices.keys() - self.failures.keys())
        if not self.failures or job.spec is None or job.spec.gpus <= left:
            return ""
        failed = "; ".join(f"{name} failed: {each.reason}" for name, each in self.failures.items())
        return f"needs {counted(job.spec.gpus, 'device')}, and {left} can be had ({failed})"

    @property
    def attempts(self) -> list[AttemptHistory]:
        """All attempts, in the order of their start commands."""
        return list(self._attempts.values())

    @property
    def settings(self) -> list[SettingPeriod]:
        """Settings other than the default, and refusals, in order of time."""
        return self._settings.periods

    @property
    def power_budget(self) -> BudgetSummary | None:
        """Power budget of the last session, and how much the limits took of it; None without a budget."""
        return self._budget.summary

    @property
    def windows(self) -> list[ProfilingSpan]:
        """Profiling windows, in the order of their ends, those without an end last."""
        return [*self._windows, *self._open_windows.values()]

    def moves(self, attempt: AttemptHistory) -> list[LaneMove]:
        """Moves of an attempt to other lanes, in order of time."""
        return self._moves.get((attempt.job, attempt.number), [])

    def packings(self) -> PackingTimeline:
        """Packings of each device over time. A log that does not record them is replayed, once."""
        if self._timeline is None:
            self._timeline = packing_timeline(self.entries, self.unlogged)
        return self._timeline

    def _job(self, name: str) -> JobHistory:
        if (job := self.jobs.get(name)) is None:
            job = self.jobs[name] = JobHistory(name)
        return job

    # A method for each kind of entry that the history needs; the fold calls them.

    def on_run_opened(self, event: RunOpened) -> None:
        """Begin a session: commands are numbered anew. Attempts of the session before have no exits."""
        if event.segment is not None:
            self._go_on(event, event.segment)
            return
        if self.devices:
            self.down_s = (self.down_s or 0.0) + event.at_s - self.end_s
        for attempt in self._going.values():
            self._job(attempt.job).resumed(self.end_s)
            attempt.ended_s, attempt.outcome, attempt.reason = self.end_s, Outcome.LOST, "cut off with the run"
        for device in event.devices:
            self.devices[device.name] = device
            self.failures.pop(device.name, None)
        self._away_s, self._away_from_s = self.away_s, None
        self._windows += self._open_windows.values()
        self._settings.begin_session(self.end_s)
        self._budget.begin_session(event)
        for kept in (self._going, self._open_windows):
            kept.clear()

    def _go_on(self, event: RunOpened, segment: Segment) -> None:
        """Go on in another segment. The opening tells what the entries lack, if earlier segments are not read."""
        self.devices.update({each.name: each for each in event.devices})
        before = {name for _, name in segment.lanes}
        for name in [each.name for each in event.devices if each.name not in before]:
            self.failures.pop(name, None)  # it was one of an earlier session
        opened = {lane: OpenedLane(lane, each.name, each.memory_bytes) for lane, each in event.lanes.items()}
        self.lanes = {**opened, **self.lanes}
        self._settings.go_on(segment.settings, event.at_s)
        self._budget.go_on(event, segment)
        for each in segment.jobs:
            job = self._job(each.spec.name)
            if job.spec is not None:
                continue
            job.goes_on(each)
            if each.spec.sweep:
                self.trials.setdefault(each.spec.sweep, []).append(job.name)
            if each.has_attempt:
                asked_s = each.first_start_s if each.attempt == 1 and each.first_start_s is not None else event.at_s
                began_s = None if each.command is not None else asked_s
                attempt = AttemptHistory(job.name, each.attempt, each.lanes, asked_s, began_s)
                self._going[job.name] = self._attempts[job.name, each.attempt] = attempt
            if each.parked_in is not None:
                job.was_parked(each.attempt, each.usage, event.at_s)

    def on_job_arrived(self, event: JobArrived) -> None:
        job = self._job(event.job.name)
        if event.job.sweep and job.spec is None:  # a trial of a resumed run arrives again
            self.trials.setdefault(event.job.sweep, []).append(job.name)
        job.arrived(event.job, event.at_s)
        self.is_stopped = False  # jobs of a resumed run arrive again, so an earlier stop no longer counts

    def on_open_lane(self, command: OpenLane, _at_s: float) -> None:
        self.lanes[command.lane] = OpenedLane(command.lane, command.device, command.budget_bytes)

    def on_start_job(self, command: StartJob, at_s: float) -> None:
        self._job(command.job).asked(command)
        attempt = AttemptHistory(command.job, command.attempt, command.lanes, at_s)
        self._going[command.job] = self._attempts[command.job, command.attempt] = attempt

    def on_kill_job(self, command: KillJob, _at_s: float) -> None:
        self._job(command.job).asked_to_end(command.pruned)

    def on_drop_job(self, command: DropJob, at_s: float) -> None:
        self._job(command.job).dropped(command.reason, at_s, command.cancelled, command.pruned)

    def on_profile_job(self, command: ProfileJob, at_s: float) -> None:
        lanes = self._going[command.job].lanes if command.job in self._going else ()
        device = "".join(self.devices_of(lanes)[:1])
        self._open_windows[command.id] = ProfilingSpan(command.job, at_s, device=device)

    def on_profiled(self, event: Profiled, _command: Command | None) -> None:
        if (window := self._open_windows.pop(event.command, None)) is not None:
            self._windows.append(replace(window, to_s=event.at_s, error=event.error))

    def on_done(self, event: Done, command: Command | None) -> None:
        match command:
            case StartJob():
                self._job(command.job).began(event.at_s)
                self._attempts[command.job, command.attempt].began_s = event.at_s
            case MoveJob():
                self._moves.setdefault((command.job, command.attempt), []).append(LaneMove(event.at_s, command.lane))
            case ApplySetting():
                self._settings.applied(command, event.at_s)
                self._budget.applied(command, event.limit_w)

    def on_refused(self, event: Refused, command: Command | None) -> None:
        match command:
            case StartJob():
                self._job(command.job).refused(event.error, event.at_s)
                attempt = self._end(command.job, command.attempt, event.at_s, Outcome.FAILED, event.error)
                assert attempt is not None, "its start command is in the log"
                attempt.was_refused = True
            case ApplySetting():
                self._settings.refused(command, event.error, event.at_s)
                self._budget.refused(command, event.error)

    def on_parked(self, event: Parked, command: Command | None) -> None:
        if isinstance(command, ParkJob):
            self._job(command.job).was_parked(command.attempt, event.usage, event.at_s)

    def on_resumed(self, event: Resumed, command: Command | None) -> None:
        if isinstance(command, ResumeJob):
            self._job(command.job).resumed(event.at_s)

    def on_setting_measured(self, event: SettingMeasured, command: Command | None) -> None:
        if isinstance(command, MeasureSetting):
            self._settings.measured(command.device, event.measurement)

    def on_exhausted(self, event: Exhausted, command: Command | None) -> None:
        assert isinstance(command, AskSampler), "the order of the log was checked"
        self.exhausted[command.sweep] = event.error or self.exhausted.get(command.sweep, "")

    def on_iterations_done(self, event: IterationsDone) -> None:
        self._job(event.job).progressed(event.usage)
        if event.usage.peak_bytes and (attempt := self._going.get(event.job)) is not None:
            attempt.peak_bytes = event.usage.peak_bytes

    def on_reported(self, event: Reported) -> None:
        self._job(event.job).reports.append((event.at_s, event.value))

    def on_target_missed(self, event: TargetMissed) -> None:
        self._job(event.job).missed.append((event.at_s, Missed(event.requests, event.missed)))

    def on_job_exited(self, event: JobExited) -> None:
        self._job(event.job).exited(event)
        attempt = self._end(event.job, event.attempt, event.at_s, event.outcome, event.reason)
        if attempt is not None:
            attempt.exit_code = event.exit_code
            attempt.peak_bytes = event.usage.peak_bytes or attempt.peak_bytes

    def _end(self, job: str, number: int, at_s: float, outcome: Outcome, reason: str) -> AttemptHistory | None:
        if (attempt := self._attempts.get((job, number))) is not None:
            self._going.pop(job, None)
            attempt.ended_s, attempt.outcome, attempt.reason = at_s, outcome, reason
        return attempt

    def on_cancel_requested(self, event: CancelRequested) -> None:
        self.cancelled[event.job] = event.reason
        if event.job in self.jobs:
            self.jobs[event.job].cancelled = event.reason

    def on_retry_requested(self, event: RetryRequested) -> None:
        self.cancelled.pop(event.job, None)
        if event.job in self.jobs:
            self.jobs[event.job].retried()

    def on_priority_changed(self, event: PriorityChanged) -> None:
        if (spec := self.jobs[event.job].spec) is not None:
            self.jobs[event.job].spec = replace(spec, priority=event.priority)

    def on_stop_requested(self, _event: StopRequested) -> None:
        self.is_stopped = True

    def on_drain_requested(self, _event: DrainRequested) -> None:
        self.is_stopped = True

    def on_slice_changed(self, event: SliceChanged) -> None:
        if self._away_from_s is not None:
            self._away_s = (self._away_s or 0.0) + event.at_s - self._away_from_s
        self._away_s = self._away_s or 0.0
        self._away_from_s = None if event.runs else event.at_s

    def on_device_failed(self, event: DeviceFailed) -> None:
        self.failures.setdefault(event.device, DeviceFailure(event.at_s, event.reason))
