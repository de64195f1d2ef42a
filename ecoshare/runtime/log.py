"""The event log of a run: every event that the core was told and every command that it gave.

One JSON object a line: `{"event": "JobArrived", "at_s": ..., ...}` or `{"command": "StartJob", "id": ..., ...}`.
It is the one truth of a run; summary, tables and charts are derived from it, and fed to a fresh core it gives the
same commands. A run that is resumed goes on in the same file with another `RunOpened`. A last line that a kill has
cut is ignored.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter

from ecoshare.core.commands import Command
from ecoshare.core.events import Event, JobExited, RunOpened
from ecoshare.errors import UsageError
from ecoshare.lane.messages import fields_of
from ecoshare.runtime.kept_file import KeptFile

_EVENTS: dict[str, Any] = {each.__name__: each for each in get_args(Event)}
_COMMANDS: dict[str, Any] = {each.__name__: each for each in get_args(Command)}

Entry = TypeVar("Entry")


class EventLog:
    """Appends to a run's log."""

    def __init__(self, path: Path) -> None:
        """Open the log at `path`, which may exist.

        Raises:
            BlockingIOError: Another controller writes it.
            OSError: It cannot be written.
        """
        self._file = KeptFile(path, lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))

    def when_gone(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever the log was written again, since its folder was removed or renamed."""
        self._file.on_gone = call

    def write(self, event: Event, commands: list[Command]) -> None:
        """Append an event and what followed from it; on the disk when this returns, if anything did, or a job ended.

        Raises:
            OSError: No room.
        """
        lines = [_line("event", event), *(_line("command", command) for command in commands)]
        self._file.append(b"".join(lines))
        if commands or isinstance(event, JobExited):
            self._file.sync()

    def close(self) -> None:
        """No more is to come."""
        self._file.close()


def read(path: Path) -> Iterator[Event | Command]:
    """The entries of a log, in order.

    Raises:
        UsageError: A line other than a cut last one is not an entry; it is named.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                fields = json.loads(line)
                known, key = (_EVENTS, "event") if "event" in fields else (_COMMANDS, "command")
                yield _adapter(known[fields.pop(key)]).validate_python(fields)
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"{path}:{number}: not an entry of an event log: {error}") from error


def replay(entries: Iterator[Event | Command]) -> Iterator[tuple[Event, list[Command], list[Command]]]:
    """Feed the events of a log to a fresh core: each event, the commands logged, and those that the core gives now.

    Every `RunOpened` begins with a fresh core, as a resumed run does.
    """
    from ecoshare.core.scheduler import Scheduler  # who only writes does not wait for it

    core = Scheduler()
    for event, logged in steps(entries):
        if isinstance(event, RunOpened):
            core = Scheduler()
        yield event, logged, core.handle(event)


def steps(entries: Iterable[Event | Command]) -> Iterator[tuple[Event, list[Command]]]:
    """Each event of a log with the commands that were logged after it."""
    event: Event | None = None
    logged: list[Command] = []
    for entry in entries:
        if isinstance(entry, Command):
            logged.append(entry)
            continue
        if event is not None:
            yield event, logged
        event, logged = entry, []
    if event is not None:
        yield event, logged


def _line(kind: str, entry: Any) -> bytes:
    return json.dumps({kind: type(entry).__name__, **fields_of(entry)}, default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{value!r} has no place in an event log")


@cache
def _adapter(entry: type[Entry]) -> TypeAdapter[Entry]:
    return TypeAdapter(entry)
