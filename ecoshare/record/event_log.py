"""The event log of a run: every event that the core received and every command that it issued.

Each line is one JSON object: `{"event": "JobArrived", "at_s": ..., ...}`, `{"command": "StartJob", "id": ..., ...}` or
`{"record": "PackingChanged", ...}`. The log is the single source of truth of a run. Summary, tables and charts are
derived from it, and a fresh core that receives its events gives the same commands. Records hold what the scheduler knew
beyond its commands (`packing_record.py`); the core does not read them. A resumed run continues the same file with
another `RunOpened`. Readers ignore a last line that a kill has cut.

The log of a run that stays open, or that machines join, has *segments* (`base/segment.py`). The last one is at the
path of the log, and the earlier ones beside it: `events-1.jsonl`, `events-2.jsonl`, ... Together they are one log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from ecoshare.base import documents
from ecoshare.base.documents import LONGEST_S
from ecoshare.base.measurement import ColocationMeasurement, PairSpeed
from ecoshare.core.commands import (
    ApplySetting,
    AskInterference,
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
from ecoshare.errors import UsageError
from ecoshare.lane.messages import fields_of
from ecoshare.record.kept_file import KeptFile
from ecoshare.record.log_fold import LogEntry, unanswered
from ecoshare.record.packing_record import PackingChanged, PackingRecorder

if TYPE_CHECKING:
    from ecoshare.core.scheduler import Scheduler


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
        for sweep in segment.sweeps:
            self._sweeps.add(sweep.spec.name)
        for job in segment.jobs:
            _check_name(job.spec.name)
            self._jobs.add(job.spec.name)
            if not set(job.lanes) <= self._lanes:
                raise ValueError(f"the lanes {list(job.lanes)} of {job.spec.name} are not open")
            if job.has_attempt:
                self._attempts[job.spec.name] = job.attempt
        for _, name, _ in segment.limits:
            self._known(name)
        self._commands.update(unanswered(segment))

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


_EVENTS: dict[str, Any] = {each.__name__: each for each in get_args(Event)}
_COMMANDS: dict[str, Any] = {each.__name__: each for each in get_args(Command)}
_RECORDS: dict[str, Any] = {"PackingChanged": PackingChanged}
_KINDS = {"event": _EVENTS, "command": _COMMANDS, "record": _RECORDS}
_KIND_OF = {name: kind for kind, known in _KINDS.items() for name in known}

_TOLD_BY_JOBS = (b'{"event": "Reported"', b'{"event": "SweepOpened"', b'{"event": "RunOpened"')
"""First bytes of lines with numbers that trials reported: a loss may be any number, NaN included."""

_FORMER_NAMES = {
    "Advised": "SettingAdvised",
    "Foreseen": "InterferencePredicted",
    "TrialMeasured": "SettingMeasured",
    "Ask": "AskSetting",
    "AskOutlook": "AskInterference",
    "MeasureTrial": "MeasureSetting",
}
"""Names of events and commands in logs of schema 2, mapped to the present names."""

_FORMER_FIELDS: dict[str, dict[str, str]] = {
    "RunOpened": {"tuned": "known_settings", "seen": "colocations"},
    "JobArrived": {"before": "earlier_attempts", "slowdown": "slowdown_limit", "power_w": "active_w"},
    "SweepOpened": {"halting": "early_stopping", "past": "earlier_trials"},
    "SettingMeasured": {"trial": "measurement"},
    "AskSetting": {"trial": "measurement"},
    "AskInterference": {"seen": "colocations"},
}
"""Former field names mapped to present ones, for each present entry name. Fields of a job or sweep lie one level
deeper.
"""

_OF_WHICH = re.compile(r", of \w+ (?=\d+ go on \()")
"""Words in the reason of a `KillJob` by early stopping that former versions wrote differently."""

Entry = TypeVar("Entry")


class LogStep(NamedTuple):
    """An event, the commands that followed from it, and the packings that changed with it."""

    event: Event
    commands: list[Command]
    packings: list[PackingChanged]


class EventLog:
    """Appends to a run's log."""

    def __init__(self, path: Path) -> None:
        """Open the log at `path`, which may exist.

        Raises:
            BlockingIOError: Another controller has locked the log.
            OSError: The log cannot be written.
        """
        self._path = path
        self._file = KeptFile(path, lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
        self._packings = PackingRecorder()
        self._grown_bytes, self._first_bytes = path.stat().st_size, 0
        self._measured: tuple[ColocationMeasurement, ...] = ()  # co-locations of the last question about interference
        # An entry that `write` could not write, with its line and whether that must be on the disk.
        self._held: tuple[Event, bytes, bool] | None = None
        for each in segments(path):
            if each.samefile(path):  # a kill came before the new segment was in place
                each.unlink()

    @property
    def grown_bytes(self) -> int:
        """Size (bytes) of what follows the beginning of the segment; 0 as long as that is less than the beginning."""
        return self._grown_bytes if self._grown_bytes >= self._first_bytes else 0

    @property
    def before(self) -> Path | None:
        """Last of the earlier segments; None if there is none."""
        return next(reversed(segments(self._path)), None)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Register `call`, which runs whenever the log is written again because its folder was removed or renamed."""
        self._file.on_gone = call

    def write(self, event: Event, commands: list[Command], core: Scheduler | None = None) -> None:
        """Append an event, the commands that followed from it, and the packings that changed with it.

        If there are commands, or a job exited, was cancelled or is to run again, the log is synchronized to disk before
        this returns.

        Args:
            event: Event that the scheduler has handled.
            commands: Commands that the scheduler gave.
            core: The scheduler. None leaves out the packings, so that readers have to replay the log.

        Raises:
            OSError: The disk is full, or the log cannot be written again. `write_held` tries once more.
        """
        if isinstance(event, RunOpened):
            self._measured = ()
        lines = [line_of(event), *map(self._line_of, commands)]
        if core is not None:
            lines += [line_of(change) for change in self._packings.changes(event, commands, core)]
        must_stay = bool(commands) or isinstance(event, JobExited | CancelRequested | RetryRequested | RunOpened)
        self._held = event, b"".join(lines), must_stay
        self.write_held()

    def _line_of(self, command: Command) -> bytes:
        """Line of a command. A question about interference has the co-locations that the last one did not have."""
        if not isinstance(command, AskInterference):
            return line_of(command)
        before, now = self._measured, command.colocations
        same = next(n for n in range(min(len(before), len(now)), -1, -1) if before[len(before) - n :] == now[:n])
        self._measured = now
        return line_of(replace(command, colocations=now[same:]), earlier=same) if same else line_of(command)

    @property
    def holds(self) -> bool:
        """Whether there is something that `write` could not write."""
        return self._held is not None

    def write_held(self) -> None:
        """Write what `write` could not write, if there is anything.

        Raises:
            OSError: See `write`.
        """
        if self._held is None:
            return
        event, data, must_stay = self._held
        is_segment = isinstance(event, RunOpened) and event.segment is not None
        is_begun = is_segment and self._has_begun(data)
        if not is_begun:
            self._file.append(data)
        self._held = None  # from here on it is in the file, if perhaps not on the disk
        self._grown_bytes += len(data)
        if is_segment:
            self._grown_bytes, self._first_bytes = 0, len(data)
        if must_stay and not is_begun:
            self._file.sync()

    def _has_begun(self, data: bytes) -> bool:
        """Begin a segment in a new file, on the disk. False if there is none: the present file may have several."""
        number = _number(self._path, before) if (before := self.before) is not None else 0
        earlier, now_ns = _segment(self._path, number + 1), time.time_ns()
        try:
            self._file.begin_anew(data, earlier)
        except OSError:
            return False
        with contextlib.suppress(OSError):  # exact, for `queue/old_jobs.py`
            os.utime(earlier, ns=(now_ns, now_ns))
        return True

    def close(self) -> None:
        self._file.close()


def segments(path: Path) -> list[Path]:
    """Earlier segments of the log at `path`, the oldest first; the last segment is at `path` itself."""
    found = {_number(path, each): each for each in path.parent.glob(f"{path.stem}-*{path.suffix}")}
    return [found[number] for number in sorted(found) if number]


def _segment(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def _number(path: Path, segment: Path) -> int:
    """Number of an earlier segment of the log at `path`; 0 for another file."""
    digits = segment.stem.removeprefix(f"{path.stem}-")
    return int(digits) if digits.isdecimal() and segment == _segment(path, int(digits)) else 0


def read(path: Path, last: bool = False) -> Iterator[LogEntry]:
    """Yield the entries of a log, in order; a cut last line is ignored.

    Args:
        path: Path of the log.
        last: Whether the last file alone is read. The `RunOpened` at its beginning has what it takes over.

    Raises:
        UsageError: A line is not an entry, or cannot follow the lines before it, or the file cannot be read. The
            message names the line.
    """
    order = Order()
    try:
        with documents.open_regular(path) as file:  # first, since the log may begin anew meanwhile
            own = os.fstat(file.fileno())
            for earlier in () if last else segments(path):
                with documents.open_regular(earlier) as before:
                    if not os.path.samestat(os.fstat(before.fileno()), own):
                        yield from _entries(earlier, before, order)
            yield from _entries(path, file, order)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "the run folder is damaged") from error


def _entries(path: Path, lines: Iterable[bytes], order: Order) -> Iterator[LogEntry]:
    measured: tuple[ColocationMeasurement, ...] = ()
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return
        try:
            entry = entry_of(line, measured)
            order.check(entry)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: not an entry of an event log: {error}") from error
        if isinstance(entry, AskInterference):
            measured = entry.colocations
        elif isinstance(entry, RunOpened):
            measured = ()
        yield entry


def entry_of(line: bytes, measured: Sequence[ColocationMeasurement] = ()) -> LogEntry:
    """Entry of a line.

    Args:
        line: The line.
        measured: Co-locations of the last question about interference, of which the line may have the number only.

    Raises:
        ValueError: The line is no entry.
    """
    fields = documents.parse(line, any_number=line.startswith(_TOLD_BY_JOBS))
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    kind = next((each for each in _KINDS if each in fields), "command")
    known, name = _KINDS[kind], fields.pop(kind, None)
    if isinstance(name, str):
        name = _FORMER_NAMES.get(name, name)
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"there is no {kind} {name!r}")
    if former := _FORMER_FIELDS.get(name):
        _rename_fields(fields, former)
    earlier = fields.pop("earlier", 0) if name == "AskInterference" else 0
    if type(earlier) is not int or not 0 <= earlier <= len(measured):
        raise ValueError(f"AskInterference.earlier: there are {len(measured)} co-locations before")
    if name == "InterferencePredicted":
        fields["pairs"] = _as_pairs(fields.get("pairs"))
    if name == "KillJob" and fields.get("pruned") and isinstance(fields.get("reason"), str):
        fields["reason"] = _OF_WHICH.sub(", of which ", fields["reason"])
    try:
        entry: LogEntry = _adapter(known[name]).validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{name}.{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
    if isinstance(entry, AskInterference) and earlier:
        return replace(entry, colocations=(*measured[len(measured) - earlier :], *entry.colocations))
    return entry


def _rename_fields(fields: dict[str, Any], names: dict[str, str]) -> None:
    """Give the fields of an older log their present names, in place."""
    for part in (fields, fields.get("job"), fields.get("sweep")):
        if isinstance(part, dict):
            for old, new in names.items():
                if old in part and new not in part:
                    part[new] = part.pop(old)


def replay(entries: Iterable[LogEntry]) -> Iterator[tuple[Event, list[Command], list[Command]]]:
    """Feed the events of a log to a fresh core.

    Every `RunOpened` begins with a fresh core, as a resumed run and a segment do.

    Yields:
        Each event, the commands logged after it, and the commands that the core gives now.
    """
    from ecoshare.core.scheduler import Scheduler  # imported late: a writer does not need it

    core = Scheduler()
    for event, logged, _ in steps(entries):
        if isinstance(event, RunOpened):
            core = Scheduler()
        yield event, logged, core.handle(event)


def steps(entries: Iterable[LogEntry]) -> Iterator[LogStep]:
    """Yield each event of a log with the commands and packings that were logged after it."""
    step: LogStep | None = None
    for entry in entries:
        if isinstance(entry, Command):
            if step is not None:
                step.commands.append(entry)
        elif isinstance(entry, PackingChanged):
            if step is not None:
                step.packings.append(entry)
        else:
            if step is not None:
                yield step
            step = LogStep(entry, [], [])
    if step is not None:
        yield step


def sessions(entries: Iterable[LogEntry]) -> list[list[LogEntry]]:
    """Entries of each session or segment; each begins with `RunOpened`."""
    found: list[list[LogEntry]] = []
    for entry in entries:
        if isinstance(entry, RunOpened) or not found:
            found.append([])
        found[-1].append(entry)
    return found


def line_of(entry: LogEntry, **more: int) -> bytes:
    """Line of an event, a command or a record, with its end and with more fields."""
    name, fields = type(entry).__name__, {**fields_of(entry), **more}
    if isinstance(entry, PackingChanged):  # one or two follow each start and end of a job, so they are kept short
        fields = {name: value for name, value in fields.items() if value or name == "jobs"}
    if isinstance(entry, Done):  # so are these, which most commands have
        fields = {name: value for name, value in fields.items() if value is not None}
    if isinstance(entry, InterferencePredicted):  # an object for each pair would take six times as much
        fields["pairs"] = _as_table(entry.pairs)
    return json.dumps({_KIND_OF[name]: name, **fields}, default=_plain).encode() + b"\n"


def _as_table(pairs: Sequence[PairSpeed]) -> Any:
    """Pairs as a table with a row for each class and a column for each neighbour; as they are if some are missing."""
    classes = list(dict.fromkeys(each.one for each in pairs))
    if [(each.one, each.other) for each in pairs] != list(product(classes, repeat=2)):
        return pairs
    rows = [pairs[first : first + len(classes)] for first in range(0, len(pairs), len(classes) or 1)]
    speeds, errors = [[each.speed for each in row] for row in rows], [[each.error for each in row] for row in rows]
    return {"classes": classes, "speeds": speeds, "errors": errors}


def _as_pairs(table: Any) -> Any:
    """Pairs of a table, see `_as_table`.

    Raises:
        ValueError: It is no such table.
    """
    if not isinstance(table, dict):
        return table
    try:
        sides = product(table["classes"], repeat=2)
        numbers = zip(chain(*table["speeds"]), chain(*table["errors"]), strict=True)
        return [
            {"one": one, "other": other, "speed": speed, "error": error}
            for (one, other), (speed, error) in zip(sides, numbers, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("InterferencePredicted.pairs: expected as many speeds and errors as pairs") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{value!r} has no place in an event log")


@cache
def _adapter(entry: type[Entry]) -> TypeAdapter[Entry]:
    return TypeAdapter(entry)
