"""Checks that each entry of an event log can follow the entries before it; a damaged log may break these rules."""

from __future__ import annotations

import re

from ecoshare.common.documents import LONGEST_S
from ecoshare.core.commands import (
    ApplySetting,
    AskSampler,
    AwaitRequests,
    Command,
    KillJob,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ParkJob,
    ProfileJob,
    ResumeJob,
    SetShares,
    StartJob,
)
from ecoshare.core.events import (
    CancelRequested,
    DeviceFailed,
    Done,
    Event,
    Exhausted,
    HoldRequested,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    Planned,
    PowerPredicted,
    PriorityChanged,
    Profiled,
    Refused,
    ReleaseRequested,
    Reported,
    Resumed,
    RetryRequested,
    RunOpened,
    SettingAdvised,
    SettingMeasured,
    SweepOpened,
)
from ecoshare.record.log_entry import LogEntry
from ecoshare.record.packing_record import PackingChanged

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_Answer = (
    Done
    | Refused
    | Parked
    | Resumed
    | Profiled
    | SettingAdvised
    | Planned
    | InterferencePredicted
    | PowerPredicted
    | SettingMeasured
    | Exhausted
)


class Order:
    """Checker for the entries of one log, in order."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._at_s = 0.0
        self._devices: set[str] | None = None
        self._lanes: set[int] = set()
        self._sweeps: set[str] = set()
        self._jobs: set[str] = set()
        self._commands: dict[int, Command] = {}
        self._attempts: dict[str, int] = {}

    def check(self, entry: LogEntry) -> None:
        """Check the next entry and remember it.

        Raises:
            ValueError: The entry cannot follow those before it.
        """
        if isinstance(entry, RunOpened):
            self._open(entry)
        elif self._devices is None:
            raise ValueError("no RunOpened stands before it")
        if isinstance(entry, Command):
            self._command(entry)
        elif isinstance(entry, PackingChanged):
            self._packing(entry)
        else:
            self._event(entry)

    def _open(self, entry: RunOpened) -> None:
        """Begin a session, which numbers its lanes and commands anew, or a segment, which keeps lanes and attempts."""
        self._devices = {each.name for each in entry.devices}
        self._lanes.clear()
        self._commands.clear()
        self._attempts.clear()
        if (segment := entry.segment) is None:
            return
        for _, device in segment.lanes:
            self._on(device)
        self._lanes.update(entry.lanes)
        for device, _ in segment.settings:
            self._on(device)
        for job in segment.jobs:
            _check_name(job.spec.name)
            self._jobs.add(job.spec.name)
            if not set(job.lanes) <= self._lanes:
                raise ValueError(f"the lanes {list(job.lanes)} of {job.spec.name} are not open")
            if job.lanes:
                self._attempts[job.spec.name] = job.attempt

    def _event(self, entry: Event) -> None:
        if not 0.0 <= entry.at_s <= LONGEST_S:
            raise ValueError(f"{entry.at_s} s is no time of a run")
        if entry.at_s < self._at_s:
            raise ValueError(f"its time, {entry.at_s} s, is before the {self._at_s} s of an event above it")
        self._at_s = entry.at_s
        match entry:
            case JobArrived():
                _check_name(entry.job.name)
                if entry.job.sweep and entry.job.sweep not in self._sweeps:
                    raise ValueError(f"there is no sweep {entry.job.sweep!r}")
                self._jobs.add(entry.job.name)
            case DeviceFailed():
                if entry.device not in (self._devices or ()):
                    raise ValueError(f"there is no device {entry.device!r}")
            case SweepOpened():
                self._sweeps.add(entry.sweep.name)
            case JobExited():
                if self._attempts.pop(self._known(entry.job), None) != entry.attempt:
                    raise ValueError(f"attempt {entry.attempt} of {entry.job} is not under way")
            case IterationsDone() | Reported() | HoldRequested() | ReleaseRequested() | PriorityChanged():
                self._known(entry.job)
            case CancelRequested() | RetryRequested():  # the job may not have arrived
                _check_name(entry.job)
            case Exhausted():
                if not isinstance(self._commands.get(entry.command), AskSampler):
                    raise ValueError(f"no sampler was asked with the number {entry.command}")
            case (
                Done()
                | Refused()
                | Parked()
                | Resumed()
                | Profiled()
                | SettingAdvised()
                | Planned()
                | InterferencePredicted()
                | PowerPredicted()
                | SettingMeasured()
            ):
                self._answered(entry)

    def _answered(self, entry: _Answer) -> None:
        if (command := self._commands.get(entry.command)) is None:
            raise ValueError(f"no command has the number {entry.command}")
        if isinstance(entry, Parked | Resumed) and not isinstance(command, ParkJob | ResumeJob):
            raise ValueError(f"the command {entry.command} moves no memory")
        if isinstance(entry, Refused) and isinstance(command, StartJob):
            self._attempts.pop(command.job, None)

    def _command(self, entry: Command) -> None:
        if entry.id in self._commands:
            raise ValueError(f"two commands have the number {entry.id}")
        self._commands[entry.id] = entry
        match entry:
            case OpenLane():
                self._on(entry.device)
                self._lanes.add(entry.lane)
            case StartJob():
                self._known(entry.job)
                if entry.job in self._attempts:
                    raise ValueError(f"{entry.job} runs already")
                if not entry.lanes or not set(entry.lanes) <= self._lanes:
                    raise ValueError(f"the lanes {list(entry.lanes)} are not open")
                self._attempts[entry.job] = entry.attempt
            case ParkJob() | ResumeJob():
                if self._attempts.get(self._known(entry.job)) != entry.attempt:
                    raise ValueError(f"attempt {entry.attempt} of {entry.job} is not under way")
            case MoveJob() | KillJob() | ProfileJob():
                self._known(entry.job)
            case SetShares():
                for share in entry.shares:
                    self._known(share.job)
            case MeasureSetting():
                self._on(entry.device)
                for job in entry.jobs:
                    self._known(job)
            case ApplySetting() | AwaitRequests():
                self._on(entry.device)
            case AskSampler():
                if entry.sweep not in self._sweeps:
                    raise ValueError(f"there is no sweep {entry.sweep!r}")

    def _packing(self, change: PackingChanged) -> None:
        self._on(change.device)
        for job, lane in change.jobs.items():
            self._known(job)
            if lane not in self._lanes:
                raise ValueError(f"the lane {lane} is not open")
        if change.speeds and len(change.speeds) != len(change.jobs):
            raise ValueError("it has a speed too many or too few")

    def _known(self, job: str) -> str:
        if job not in self._jobs:
            raise ValueError(f"there is no job {job!r} above it")
        return job

    def _on(self, device: str) -> None:
        if device not in (self._devices or ()):
            raise ValueError(f"there is no device {device!r}")


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a job")
