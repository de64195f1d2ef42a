"""A recorded run at any moment: the view that `ecoshare top` would have shown then.

The log gives states and lanes, the samples give power, clocks, memory and joules, and the traces give turns and exact
iterations. A value that was not recorded is None.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import PROCESSORS
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.joules import ATTRIBUTED, MEASURED, MODELLED
from ecoshare.core.commands import Command, DropJob, KillJob, MoveJob, ParkJob, ResumeJob, StartJob
from ecoshare.core.events import (
    CancelRequested,
    Done,
    Event,
    HoldRequested,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    PriorityChanged,
    Refused,
    ReleaseRequested,
    Resumed,
    RunOpened,
)
from ecoshare.core.records import FINAL_STATES, JobState
from ecoshare.lane import trace
from ecoshare.lane.serving.request_intervals import RECENT_S, RequestInterval, percentiles_s
from ecoshare.lane.trace import Kind
from ecoshare.queue.queue_documents import JobStatus
from ecoshare.record.accounts.energy_account import EnergyAccount
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.log_fold import LogEntry, LogFold
from ecoshare.record.results.run_summary import DeviceSummary
from ecoshare.record.run_data import RunData, is_live, read
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_view import LONG_WAIT_S, DeviceStatus, LaneStatus, ServiceStatus
from ecoshare.record.samples import Sample, attempt_key
from ecoshare.top.top_view import TopView, in_order

if TYPE_CHECKING:
    import numpy as np


class RisingSum:
    """Sum of joules that are spread evenly over intervals of time."""

    def __init__(self) -> None:
        """Sum without any interval."""
        self._from_s, self._to_s = array("d"), array("d")
        self._before_j = array("d")
        self._total_j = 0.0

    def add(self, from_s: float, to_s: float, energy_j: float) -> None:
        """Add an interval (s), which does not begin before the one that was added last."""
        self._from_s.append(from_s)
        self._to_s.append(to_s)
        self._before_j.append(self._total_j)
        self._total_j += energy_j

    def at(self, at_s: float) -> float | None:
        """Joules up to this time (s); None before the first interval."""
        place = bisect_right(self._from_s, at_s) - 1
        if place < 0:
            return None
        return self._before_j[place] + self._spent_j(place) * self._share(place, at_s)

    def rate_w(self, at_s: float) -> float | None:
        """Mean power (W) of the interval that this time (s) lies in; None outside of all intervals."""
        place = bisect_right(self._from_s, at_s) - 1
        if place < 0 or at_s > self._to_s[place]:
            return None
        return self._spent_j(place) / (self._to_s[place] - self._from_s[place])

    def _spent_j(self, place: int) -> float:
        after_j = self._before_j[place + 1] if place + 1 < len(self._before_j) else self._total_j
        return after_j - self._before_j[place]

    def _share(self, place: int, at_s: float) -> float:
        length_s = self._to_s[place] - self._from_s[place]
        return min(1.0, (at_s - self._from_s[place]) / length_s) if length_s > 0.0 else 1.0


class RecordedEnergy:
    """Joules of the devices and jobs of a recorded run at any moment.

    Attributes:
        devices: Joules of each device, by its name. A device without known joules is left out.
    """

    def __init__(self, energy: RunEnergy) -> None:
        """Joules of a run with these accounts."""
        self.devices: dict[str, RisingSum] = {}
        self._jobs: dict[str, list[RisingSum]] = defaultdict(list)
        for name, own in energy.devices.items():
            device, jobs = _sums(own)
            if own.energy is not None:
                self.devices[name] = device
            for job, part in jobs.items():
                self._jobs[job].append(part)

    def job(self, name: str, at_s: float) -> float | None:
        """Joules of a job beyond idle, on all devices, up to this time (s); None if they are not known."""
        parts = [part for each in self._jobs.get(name, ()) if (part := each.at(at_s)) is not None]
        return sum(parts) if parts else None


def _sums(own: EnergyAccount) -> tuple[RisingSum, Mapping[str, RisingSum]]:
    device, jobs = RisingSum(), defaultdict[str, RisingSum](RisingSum)
    for each in own.intervals:
        if each.energy_j is not None:
            device.add(each.from_s, each.to_s, each.energy_j)
            for job, part_j in each.jobs_j.items():
                jobs[job].add(each.from_s, each.to_s, part_j)
    return device, jobs


class RecordedDevice:
    """One device of a recorded run.

    Attributes:
        name: Name in the run.
        source: `measured` or `modelled`; empty without a meter.
    """

    def __init__(self, data: RunData, summary: DeviceSummary, energy: Mapping[str, RisingSum]) -> None:
        """Device with this summary.

        Args:
            data: The run.
            summary: Summary of the device.
            energy: Joules of each device, by name.
        """
        self.name = summary.name
        session = data.energy.of(self.name).session
        self.source = session.source if session is not None else ""
        self._summary, self._energy = summary, energy.get(self.name)
        cores = f", {summary.cores} cores" if summary.fields["kind"] == PROCESSORS else ""
        self._described = f"{summary.model}{cores}"
        self._samples = data.samples_of(self.name)
        self._times_s = [each.at_s for each in self._samples]
        self._settings = [each for each in data.history.settings if each.device == self.name and each.error is None]
        self._set_s = [each.from_s for each in self._settings]

    def sample(self, at_s: float) -> Sample | None:
        """Last sample up to this time (s); None before the first."""
        place = bisect_right(self._times_s, at_s) - 1
        return self._samples[place] if place >= 0 else None

    def at(self, at_s: float, lanes: list[LaneStatus]) -> DeviceStatus:
        """The device at this time (s), with these lanes."""
        sample, failure = self.sample(at_s), self._summary.failed
        energy_j = self._energy.at(at_s) if self._energy is not None else None
        power_w = sample.power_w if sample is not None else None
        if power_w is None and self._energy is not None:
            power_w = self._energy.rate_w(at_s)
        return DeviceStatus(
            name=self.name,
            described=self._described,
            failed=failure.reason if failure is not None and failure.at_s <= at_s else "",
            lanes=lanes,
            setting=self._setting(at_s),
            power_w=power_w,
            energy_j=energy_j,
            energy_source=self.source if energy_j is not None else "",
            gpu_clock_mhz=sample.gpu_clock_mhz if sample is not None else None,
            memory_clock_mhz=sample.memory_clock_mhz if sample is not None else None,
            temperature_c=sample.temperature_c if sample is not None else None,
            busy=sample.busy if sample is not None else None,
            memory_bytes=sample.in_use_bytes if sample is not None else None,
            memory_total_bytes=self._summary.memory_bytes,
        )

    def _setting(self, at_s: float) -> dict[str, float | str]:
        place = bisect_right(self._set_s, at_s) - 1
        if place < 0:
            return {}
        each = self._settings[place]
        return each.setting if each.to_s is None or at_s < each.to_s else {}


class RecordedRequests:
    """Requests of the last attempt of a service."""

    def __init__(self, intervals: Iterable[RequestInterval]) -> None:
        """Requests of these intervals, in order."""
        self._intervals = list(intervals)
        self._ends_s = [each.at_s for each in self._intervals]
        self._arrived = [0, *accumulate(each.arrived for each in self._intervals)]
        self._late = [0, *accumulate(each.late for each in self._intervals)]
        self._unanswered = [0, *accumulate(each.failed + each.refused for each in self._intervals)]

    def at(self, at_s: float, target_s: float) -> ServiceStatus:
        """Requests up to a time (s), for a service with this target (s) of the 99th percentile."""
        known = bisect_right(self._ends_s, at_s)
        recent = self._intervals[bisect_right(self._ends_s, at_s - RECENT_S) : known]
        (p99_s,) = percentiles_s(recent, (99.0,))
        return ServiceStatus(
            target_s=target_s,
            arrived=self._arrived[known],
            late=self._late[known],
            unanswered=self._unanswered[known],
            p99_s=None if math.isnan(p99_s) else p99_s,
        )


_MOST_TRACES = 64
"""Most traces in memory. One has 9 MB at most."""


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """Trace of an attempt.

    Attributes:
        turns_s: Times (s) at which the turn began or ended, of shape (n,).
        begins: Whether it began, of shape (n,).
        iterations_s: Times (s) at which an iteration ended, of shape (m,).
        trained: Number of training iterations up to each of these, of shape (m,).
    """

    turns_s: np.ndarray
    begins: np.ndarray
    iterations_s: np.ndarray
    trained: np.ndarray

    def holds(self, at_s: float) -> bool:
        """Whether the attempt had the turn at this time (s)."""
        place = int(self.turns_s.searchsorted(at_s, "right")) - 1
        return place >= 0 and bool(self.begins[place])

    def done(self, at_s: float) -> int:
        """Number of marked iterations of both kinds up to this time (s)."""
        return int(self.iterations_s.searchsorted(at_s, "right"))

    def training(self, at_s: float) -> int:
        """Number of marked training iterations up to this time (s)."""
        done = self.done(at_s)
        return int(self.trained[done - 1]) if done else 0

    def rate(self, at_s: float) -> float | None:
        """Iterations per second of wall time so far, waits included; None before two are done."""
        done = self.done(at_s)
        if done < 2:
            return None
        span_s = float(self.iterations_s[done - 1] - self.iterations_s[0])
        return (done - 1) / span_s if span_s > 0.0 else None


class RecordedTurns:
    """Traces of a run. Each is read when it is first asked for."""

    def __init__(self, folder: RunFolder) -> None:
        """Traces in a run folder."""
        self._folder = folder
        self._known: OrderedDict[tuple[str, int], AttemptTrace] = OrderedDict()

    def of(self, job: str, attempt: int) -> AttemptTrace:
        """Trace of an attempt, which is empty if there is none."""
        key = job, attempt
        if key not in self._known:
            self._known[key] = self._read(job, attempt)
            if len(self._known) > _MOST_TRACES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    def _read(self, job: str, attempt: int) -> AttemptTrace:
        kinds, times_s = trace.columns(trace.trace_path(self._folder.job(job), attempt))
        is_turn, is_iteration = kinds <= Kind.TURN_ENDS, (kinds == Kind.TRAIN) | (kinds == Kind.EVAL)
        trained = (kinds[is_iteration] == Kind.TRAIN).cumsum()
        return AttemptTrace(times_s[is_turn], kinds[is_turn] == Kind.TURN_BEGINS, times_s[is_iteration], trained)


_HAS_PLACE = (JobState.STARTING, JobState.RUNNING, JobState.PARKING, JobState.RESUMING)
_IN_PLACE = {state.value for state in _HAS_PLACE}


@dataclass(frozen=True, slots=True)
class JobMoment:
    """One job at one moment.

    One pass over the log writes down each change of a job as a whole new `JobMoment`. A moment of the run is then
    reached from an earlier one by the changes between the two; a step back begins anew.

    The states are read from the log alone, and not from a core that replays it: an older run would be lost where
    today's core decides otherwise.

    Attributes:
        state: Value of a `JobState`.
        sweep: Sweep of a trial; empty for any other job.
        arrived_s: Time (s) of the first arrival.
        attempt: Number of the last attempt; 0 before the first.
        began_s: Time (s) at which the first process of the job existed.
        ended_s: Time (s) of the end; None before it.
        trained: Training iterations of the attempt, as the log tells them.
        evaluated: Inference iterations of the attempt, as the log tells them.
        by_steps: Whether training iterations are steps of optimizers that step by turns, see `Usage`.
        total: Number of all training iterations, if known.
        reason: Cause of an end without success.
    """

    name: str
    state: str
    sweep: str = ""
    arrived_s: float = 0.0
    attempt: int = 0
    began_s: float | None = None
    ended_s: float | None = None
    lanes: tuple[int, ...] = ()
    priority: int = 0
    trained: int = 0
    evaluated: int = 0
    by_steps: bool = False
    total: int | None = None
    reason: str = ""
    exit_code: int | None = None


_PROGRESS_S = 10.0
"""Least time (s) between two changes of the iterations alone. Samples and traces tell them more finely."""

Change = tuple[float, JobMoment]
"""Time (s) of a change, and the job after it."""


class RecordedJobs:
    """Jobs of a recorded run at any moment."""

    def __init__(self, changes: list[Change]) -> None:
        """Jobs with these changes, in order of time."""
        self._changes = changes
        self._jobs: dict[str, JobMoment] = {}
        self._next = 0
        self._at_s = 0.0

    def at(self, at_s: float) -> Mapping[str, JobMoment]:
        """The jobs that have arrived, by name, in the order of their arrivals. The mapping changes with the next call.

        A call costs as much as there are changes since the moment of the last call; one for an earlier moment as much
        as there are since the beginning.
        """
        if at_s < self._at_s:
            self._jobs, self._next = {}, 0
        self._at_s = at_s
        while self._next < len(self._changes) and self._changes[self._next][0] <= at_s:
            _, moment = self._changes[self._next]
            self._jobs[moment.name] = moment
            self._next += 1
        return self._jobs


def changes(entries: Iterable[LogEntry], ends: Mapping[str, str]) -> list[Change]:
    """Changes of the jobs, from the entries of a log.

    Args:
        entries: Entries in order, ends that the log lacks included.
        ends: State of each job at the end of the record.
    """
    entries = list(entries)
    attempts = Counter(entry.job for entry in entries if isinstance(entry, StartJob))
    found = _Changes(attempts, ends)
    for entry in entries:
        found.take(entry)
    return found.changes


class _Changes:
    """Follows the entries of a log.

    Attributes:
        changes: Changes so far.
    """

    def __init__(self, attempts: Counter[str], ends: Mapping[str, str]) -> None:
        self.changes: list[Change] = []
        self._to_start, self._ends = attempts, ends
        self._jobs: dict[str, JobMoment] = {}
        self._progress_s: dict[str, float] = {}
        self._at_s = 0.0
        self._fold = LogFold(self)

    def take(self, entry: LogEntry) -> None:
        """Follow the next entry."""
        if isinstance(entry, Event):
            self._at_s = max(self._at_s, entry.at_s)
        self._fold.take(entry)

    def _note(self, moment: JobMoment) -> None:
        self._jobs[moment.name] = moment
        self.changes.append((self._at_s, moment))

    def _set(self, name: str, state: JobState | None, /, **fields: Any) -> None:
        """Note other fields of a job, if it has arrived."""
        if (job := self._jobs.get(name)) is not None:
            self._note(replace(job, state=job.state if state is None else state.value, **fields))

    def on_run_opened(self, event: RunOpened) -> None:
        if event.segment is None:
            for job in list(self._jobs.values()):
                if job.state not in FINAL_STATES:
                    self._set(job.name, JobState.QUEUED, lanes=())
            return
        for each in event.segment.jobs:
            if each.spec.name not in self._jobs:  # the log has no earlier segments any more
                state = JobState.RUNNING if each.lanes else JobState.HELD if each.held else JobState.QUEUED
                self._note(replace(self._arrived(each.spec), state=each.state or state.value, lanes=each.lanes))

    def on_job_arrived(self, event: JobArrived) -> None:
        self._note(self._arrived(event.job))

    def on_start_job(self, command: StartJob, _at_s: float) -> None:
        self._to_start[command.job] -= 1
        begun = {"attempt": command.attempt, "lanes": command.lanes, "ended_s": None, "exit_code": None}
        self._set(command.job, JobState.STARTING, reason="", **begun, **_done(Usage()))

    def on_park_job(self, command: ParkJob, _at_s: float) -> None:
        self._set(command.job, JobState.PARKING)

    def on_resume_job(self, command: ResumeJob, _at_s: float) -> None:
        self._set(command.job, JobState.RESUMING, lanes=(command.lane,))

    def on_kill_job(self, command: KillJob, _at_s: float) -> None:
        if self._state(command.job) in _IN_PLACE:
            self._set(command.job, JobState.STOPPING)

    def on_drop_job(self, command: DropJob, _at_s: float) -> None:
        self._over(command.job, command.reason, None)

    def on_done(self, event: Done, command: Command | None) -> None:
        if isinstance(command, StartJob) and (job := self._jobs.get(command.job)) is not None:
            state = JobState.RUNNING if job.state == JobState.STARTING.value else None
            self._set(job.name, state, began_s=event.at_s if job.began_s is None else job.began_s)
        elif isinstance(command, MoveJob):
            self._set(command.job, None, lanes=(command.lane,))

    def on_refused(self, event: Refused, command: Command | None) -> None:
        if isinstance(command, StartJob):
            self._over(command.job, event.error, None)
        elif isinstance(command, ParkJob):
            self._set(command.job, JobState.RUNNING)

    def on_parked(self, event: Parked, command: Command | None) -> None:
        if isinstance(command, ParkJob):
            self._set(command.job, JobState.PARKED, lanes=(), **_done(event.usage))

    def on_resumed(self, _event: Resumed, command: Command | None) -> None:
        if isinstance(command, ResumeJob):
            self._set(command.job, JobState.RUNNING)

    def on_iterations_done(self, event: IterationsDone) -> None:
        if self._at_s - self._progress_s.get(event.job, -math.inf) >= _PROGRESS_S:
            self._progress_s[event.job] = self._at_s
            self._set(event.job, None, **_done(event.usage))

    def on_job_exited(self, event: JobExited) -> None:
        self._over(event.job, event.reason, event.exit_code, event.usage)

    def on_cancel_requested(self, event: CancelRequested) -> None:
        if event.job not in self._jobs and event.job in self._ends:
            ended = JobState.CANCELLED.value
            self._note(JobMoment(event.job, ended, arrived_s=event.at_s, ended_s=event.at_s, reason=event.reason))

    def on_priority_changed(self, event: PriorityChanged) -> None:
        self._set(event.job, None, priority=event.priority)

    def on_hold_requested(self, event: HoldRequested) -> None:
        if self._state(event.job) == JobState.QUEUED.value:
            self._set(event.job, JobState.HELD)

    def on_release_requested(self, event: ReleaseRequested) -> None:
        if self._state(event.job) == JobState.HELD.value:
            self._set(event.job, JobState.QUEUED)

    def _arrived(self, spec: JobSpec) -> JobMoment:
        job = self._jobs.get(spec.name) or JobMoment(spec.name, "", spec.sweep, arrived_s=self._at_s)
        fields: dict[str, Any] = {
            "priority": spec.priority,
            "total": spec.iterations,
            "ended_s": None,
            "reason": "",
            "exit_code": None,
        }
        return replace(job, state=JobState.QUEUED.value, lanes=(), **fields)

    def _over(self, name: str, reason: str, code: int | None, usage: Usage | None = None) -> None:
        """Note the end of an attempt: the job waits for the next one, or has ended."""
        done = {} if usage is None else _done(usage)
        state = self._ends.get(name, JobState.CANCELLED.value)
        if self._to_start[name] or state not in FINAL_STATES:  # the next attempt may not be decided yet
            self._set(name, JobState.QUEUED, lanes=(), **done)
            return
        said = "" if state in (JobState.COMPLETED.value, JobState.PRUNED.value) else reason
        over: dict[str, Any] = {"ended_s": self._at_s, "reason": said, "exit_code": code}
        self._set(name, JobState(state), lanes=(), **over, **done)

    def _state(self, name: str) -> str:
        job = self._jobs.get(name)
        return job.state if job is not None else ""


def _done(usage: Usage) -> dict[str, Any]:
    return {"trained": usage.iterations, "evaluated": usage.eval_iterations, "by_steps": usage.by_steps}


MOST_ENDED = 100
"""Most ended jobs that are listed."""


class RecordedRun:
    """A run at any moment of its record.

    Attributes:
        folder: Folder of the run.
        end_s: Time (s) of the last event or sample.
        goes_on: Whether the run was still in progress when it was read.
    """

    def __init__(self, folder: RunFolder) -> None:
        """Read the record of a run.

        Raises:
            UsageError: The folder is damaged.
        """
        self.folder = folder
        self.goes_on = is_live(folder)
        self._data = data = read(folder, packings=False)
        self.end_s = data.end_s()
        self._energy, self._turns = RecordedEnergy(data.energy), RecordedTurns(folder)
        self._jobs = RecordedJobs(changes([*data.history.entries, *data.history.unlogged], _ends(data)))
        by_lane: dict[str, list[int]] = defaultdict(list)
        for number, lane in sorted(data.history.lanes.items()):
            by_lane[lane.device].append(number)
        self._lanes = by_lane
        self._devices = [RecordedDevice(data, each, self._energy.devices) for each in data.summary.devices]
        self._is_measured = all(each.source == MEASURED for each in self._devices if each.source)
        self._services = {name: RecordedRequests(each) for name, each in data.requests.items()}

    def at(self, at_s: float) -> TopView:
        """The run at a time (s) since it was opened."""
        moments = self._jobs.at(at_s)
        samples = [each.sample(at_s) for each in self._devices]
        traces = {job.name: self._turns.of(job.name, job.attempt) for job in moments.values() if job.lanes}
        jobs = [self._job(job, at_s, samples, traces.get(job.name)) for job in self._listed(moments)]
        jobs += self._sweeps(moments)
        listed, waiting = in_order(jobs)
        return TopView(
            f"run {self.folder.path.name}",
            self._data.summary.policy,
            at_s,
            None,
            tuple(each.at(at_s, self._lane_statuses(each.name, moments, traces, at_s)) for each in self._devices),
            listed,
            waiting,
        )

    def _listed(self, moments: Mapping[str, JobMoment]) -> list[JobMoment]:
        """Jobs of the job file, without those that have ended long ago."""
        own = [job for job in moments.values() if not job.sweep]
        ended = sorted((job for job in own if job.ended_s is not None), key=lambda job: job.ended_s or 0.0)
        old = {job.name for job in ended[:-MOST_ENDED]}
        return [job for job in own if job.name not in old]

    def _job(
        self, job: JobMoment, at_s: float, samples: Iterable[Sample | None], trace: AttemptTrace | None
    ) -> JobStatus:
        trained, evaluated, rate = job.trained, job.evaluated, None
        key = attempt_key(job.name, job.attempt)
        for sample in samples if job.lanes else ():
            if sample is not None and (progress := sample.jobs.get(key)) is not None:
                trained, evaluated = max(trained, progress.iterations), max(evaluated, progress.eval_iterations)
        if trace is not None and job.state == "running":
            marked = trace.training(at_s)
            trained, evaluated = max(trained, marked), max(evaluated, trace.done(at_s) - marked)
            rate = trace.rate(at_s)
        waits_s, behind = self._wait(job, at_s)
        if waits_s:
            rate = None
        energy_j = self._energy.job(job.name, at_s)
        left = max(0, job.total - trained) if job.total is not None else None
        devices = self._data.history.devices_of(job.lanes) if len(self._devices) > 1 else ()
        service = self._service(job, at_s)
        return JobStatus(
            name=job.name,
            state=job.state,
            submitted_unix_s=job.arrived_s,
            started_unix_s=job.began_s,
            ended_unix_s=job.ended_s,
            exit_code=job.exit_code,
            reason=job.reason,
            priority=job.priority,
            attempts=job.attempt,
            iterations=trained or evaluated,
            of_iterations=job.total,
            by_steps=job.by_steps,
            iterations_per_s=None if service is not None else rate,
            turn_wait_s=waits_s,
            behind=list(behind),
            expected_end_unix_s=at_s + left / rate if left is not None and rate and service is None else None,
            energy_j=energy_j,
            energy_source="" if energy_j is None else ATTRIBUTED if self._is_measured else MODELLED,
            service=service,
            lanes=list(job.lanes),
            devices=list(devices),
            run=str(self.folder.path),
        )

    def _wait(self, job: JobMoment, at_s: float) -> tuple[float, tuple[str, ...]]:
        if self._data.account is None or job.state != "running":
            return 0.0, ()
        waits_s, behind = self._data.account.wait(job.name, at_s)
        return (waits_s, behind) if waits_s >= LONG_WAIT_S else (0.0, ())

    def _service(self, job: JobMoment, at_s: float) -> ServiceStatus | None:
        spec = self._data.history.of(job.name).spec
        if spec is None or spec.service is None:
            return None
        requests = self._services.get(job.name) or RecordedRequests(())
        return requests.at(at_s, spec.service.p99_s)

    def _sweeps(self, moments: Mapping[str, JobMoment]) -> list[JobStatus]:
        """A row for each sweep of which trials have arrived."""
        trials: dict[str, list[JobMoment]] = defaultdict(list)
        for job in moments.values():
            if job.sweep:
                trials[job.sweep].append(job)
        counts = {each.name: each.trials for each in self._data.summary.sweeps}
        rows = []
        for name, own in trials.items():
            ended = Counter(job.state for job in own if job.ended_s is not None)
            known = counts.get(name)
            count = known if known is not None else len(own)
            is_over = sum(ended.values()) >= count
            began = [job.began_s for job in own if job.began_s is not None]
            rows.append(
                JobStatus(
                    name=name,
                    state=("completed" if ended["completed"] else "failed") if is_over else "running",
                    submitted_unix_s=min(job.arrived_s for job in own),
                    started_unix_s=min(began, default=None),
                    ended_unix_s=max(job.ended_s or 0.0 for job in own) if is_over else None,
                    trials=count,
                    ended_trials=dict(ended),
                    run=str(self.folder.path),
                )
            )
        return rows

    def _lane_statuses(
        self, device: str, moments: Mapping[str, JobMoment], traces: Mapping[str, AttemptTrace], at_s: float
    ) -> list[LaneStatus]:
        inside: dict[int, list[str]] = {number: [] for number in self._lanes[device]}
        for job in moments.values():
            for lane in job.lanes:
                if lane in inside:
                    inside[lane].append(job.name)
        return [
            LaneStatus(number=number, jobs=jobs, holder=next((job for job in jobs if traces[job].holds(at_s)), ""))
            for number, jobs in inside.items()
        ]


def _ends(data: RunData) -> dict[str, str]:
    """State of each job at the end of the record. A job that was preempted in a run that goes on waits."""
    ends = {job.name: job.state for job in data.summary.jobs}
    history = data.history
    if data.summary.state != "running" or history.is_stopped:
        return ends
    for name in ends:
        told = history.of(name)
        is_stopped = told.exit is not None and told.exit.outcome is Outcome.STOPPED
        if is_stopped and not told.is_pruned and name not in history.cancelled:
            ends[name] = "queued"
    return ends
