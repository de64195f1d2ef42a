"""States of the jobs of a recorded run over time, from its log.

One pass over the log writes down each change of a job as a whole new `JobMoment`. A moment of the run is then reached
from an earlier one by the changes between the two; a step back begins anew.

The states are read from the log alone, and not from a core that replays it: an older run would be lost where today's
core decides otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

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
from ecoshare.record.event_log import LogEntry
from ecoshare.record.packing_record import PackingChanged
from ecoshare.values.attempt import Usage
from ecoshare.values.job_spec import JobSpec

_HAS_PLACE = (JobState.STARTING, JobState.RUNNING, JobState.PARKING, JobState.RESUMING)
_IN_PLACE = {state.value for state in _HAS_PLACE}


@dataclass(frozen=True, slots=True)
class JobMoment:
    """One job at one moment.

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
    starts = {entry.job: place for place, entry in enumerate(entries) if isinstance(entry, StartJob)}
    pass_over = _Pass(starts, ends)
    return [change for place, entry in enumerate(entries) for change in pass_over.take(place, entry)]


class _Pass:
    """Takes the entries of a log one by one."""

    def __init__(self, starts: Mapping[str, int], ends: Mapping[str, str]) -> None:
        self._starts, self._ends = starts, ends
        self._jobs: dict[str, JobMoment] = {}
        self._commands: dict[int, Command] = {}
        self._progress_s: dict[str, float] = {}
        self._at_s = 0.0
        self._place = 0

    def take(self, place: int, entry: LogEntry) -> Iterator[Change]:
        """Changes that follow from the entry at this place."""
        self._place = place
        if isinstance(entry, PackingChanged):
            return
        if isinstance(entry, Command):
            found = self._command(entry)
        else:
            self._at_s = max(self._at_s, entry.at_s)
            found = self._event(entry)
        for moment in found:
            self._jobs[moment.name] = moment
            yield self._at_s, moment

    def _with(self, name: str, state: JobState | None, /, **fields: Any) -> Iterator[JobMoment]:
        """The job with other fields, if it has arrived."""
        if (job := self._jobs.get(name)) is not None:
            yield replace(job, state=job.state if state is None else state.value, **fields)

    def _command(self, command: Command) -> Iterator[JobMoment]:
        match command:
            case StartJob():
                self._commands[command.id] = command
                begun = {"attempt": command.attempt, "lanes": command.lanes, "ended_s": None, "exit_code": None}
                yield from self._with(command.job, JobState.STARTING, reason="", **begun, **_done(Usage()))
            case MoveJob() | ParkJob() | ResumeJob():
                self._commands[command.id] = command
                if isinstance(command, ParkJob):
                    yield from self._with(command.job, JobState.PARKING)
                elif isinstance(command, ResumeJob):
                    yield from self._with(command.job, JobState.RESUMING, lanes=(command.lane,))
            case KillJob():
                if self._state(command.job) in _IN_PLACE:
                    yield from self._with(command.job, JobState.STOPPING)
            case DropJob():
                yield from self._over(command.job, command.reason, None)

    def _event(self, event: Event) -> Iterator[JobMoment]:
        match event:
            case RunOpened() if event.segment is not None:
                for each in event.segment.jobs:
                    if each.spec.name not in self._jobs:  # the log has no earlier segments any more
                        state = JobState.RUNNING if each.lanes else JobState.HELD if each.held else JobState.QUEUED
                        yield replace(self._arrived(each.spec), state=state.value, lanes=each.lanes)
            case RunOpened():
                self._commands.clear()
                for job in self._jobs.values():
                    if job.state not in FINAL_STATES:
                        yield replace(job, state=JobState.QUEUED.value, lanes=())
            case JobArrived():
                yield self._arrived(event.job)
            case IterationsDone() if self._at_s - self._progress_s.get(event.job, -math.inf) >= _PROGRESS_S:
                self._progress_s[event.job] = self._at_s
                yield from self._with(event.job, None, **_done(event.usage))
            case JobExited():
                yield from self._over(event.job, event.reason, event.exit_code, event.usage)
            case CancelRequested() if event.job not in self._jobs and event.job in self._ends:
                ended = JobState.CANCELLED.value
                yield JobMoment(event.job, ended, arrived_s=event.at_s, ended_s=event.at_s, reason=event.reason)
            case PriorityChanged():
                yield from self._with(event.job, None, priority=event.priority)
            case HoldRequested() if self._state(event.job) == JobState.QUEUED.value:
                yield from self._with(event.job, JobState.HELD)
            case ReleaseRequested() if self._state(event.job) == JobState.HELD.value:
                yield from self._with(event.job, JobState.QUEUED)
            case Done() | Refused() | Parked() | Resumed():
                yield from self._answered(self._commands.pop(event.command, None), event)

    def _answered(self, command: Command | None, event: Done | Refused | Parked | Resumed) -> Iterator[JobMoment]:
        match command, event:
            case StartJob(), Done() if (job := self._jobs.get(command.job)) is not None:
                state = JobState.RUNNING if job.state == JobState.STARTING.value else None
                yield from self._with(job.name, state, began_s=event.at_s if job.began_s is None else job.began_s)
            case StartJob(), Refused():
                yield from self._over(command.job, event.error, None)
            case MoveJob(), Done():
                yield from self._with(command.job, None, lanes=(command.lane,))
            case ParkJob(), Parked():
                yield from self._with(command.job, JobState.PARKED, lanes=(), **_done(event.usage))
            case ParkJob(), Refused():
                yield from self._with(command.job, JobState.RUNNING)
            case ResumeJob(), Resumed():
                yield from self._with(command.job, JobState.RUNNING)

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

    def _over(self, name: str, reason: str, code: int | None, usage: Usage | None = None) -> Iterator[JobMoment]:
        """The job after the end of an attempt: it waits for the next one, or has ended."""
        job = self._jobs.get(name)
        if job is None:
            return
        job = replace(job, **_done(usage)) if usage is not None else job
        if self._starts.get(name, -1) > self._place:
            yield replace(job, state=JobState.QUEUED.value, lanes=())
            return
        state = self._ends.get(name, JobState.CANCELLED.value)
        if state not in FINAL_STATES:  # the run goes on, and its next attempt is not decided yet
            yield replace(job, state=JobState.QUEUED.value, lanes=())
            return
        said = "" if state in (JobState.COMPLETED.value, JobState.PRUNED.value) else reason
        over: dict[str, Any] = {"ended_s": self._at_s, "reason": said, "exit_code": code}
        yield replace(job, state=state, lanes=(), **over)

    def _state(self, name: str) -> str:
        job = self._jobs.get(name)
        return job.state if job is not None else ""


def _done(usage: Usage) -> dict[str, Any]:
    return {"trained": usage.iterations, "evaluated": usage.eval_iterations, "by_steps": usage.by_steps}
