"""When each iteration of a job ended, and when it had the turn: `trace.bin` in the job's folder.

Nine bytes a mark, written by the job itself, since nobody else sees its boundaries; a few hundred at a time, at the
latest when it gives up its turn. What a killed job had not written yet is lost, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ecoshare.common import documents
from ecoshare.lane.files import of_attempt
from ecoshare.lane.own_file import OwnFile

_MARK = struct.Struct("<Bd")
MARK_BYTES = _MARK.size
_FLUSH_BYTES = 512 * _MARK.size
_MOST_ITERATIONS = 1_000_000
"""A trace stays below 10 MB or so: later iterations are counted as ever, and not marked."""


class Kind(IntEnum):
    """What happened."""

    TURN_BEGINS = 0
    TURN_ENDS = 1
    TRAIN = 2
    """A training iteration ended."""
    EVAL = 3
    """An inference iteration ended."""


class Mark(NamedTuple):
    """One moment of a job, in seconds since the run was opened."""

    kind: Kind
    at_s: float


class Iteration(NamedTuple):
    """An iteration, with whatever came between it and the one before."""

    kind: Kind
    from_s: float
    to_s: float


class Tracer:
    """Writes a job's trace. What cannot be written is given up: no job fails for its trace."""

    def __init__(self, path: Path, opened_s: float) -> None:
        """A trace at `path`, whose times count from `opened_s` on the monotonic clock."""
        self._opened_s = opened_s
        self._pid = os.getpid()
        self._iterations = 0
        self._marks = bytearray()
        self._file: OwnFile | None = None
        with contextlib.suppress(OSError):
            self._file = OwnFile(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def iteration(self, kind: Kind, at_s: float) -> None:
        """An iteration has ended."""
        self._iterations += 1
        if self._iterations <= _MOST_ITERATIONS:
            self._marks += _MARK.pack(kind, at_s - self._opened_s)
            if len(self._marks) >= _FLUSH_BYTES:
                self.flush()

    def turn(self, kind: Kind, at_s: float) -> None:
        """The turn has been taken or given up."""
        self._marks += _MARK.pack(kind, at_s - self._opened_s)
        if kind is Kind.TURN_ENDS:
            self.flush()

    def close(self) -> None:
        """Write what is marked, and mark no more."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def flush(self) -> None:
        """Write what is marked."""
        if self._file is not None and self._pid == os.getpid():  # not in a child that the script has forked
            try:
                os.write(self._file.number(), self._marks)
            except OSError:
                self._file = None
        self._marks.clear()


def trace_path(folder: Path, attempt: int) -> Path:
    """The trace of an attempt, in its job's folder."""
    return of_attempt(folder, "trace.bin", attempt)


def whole_bytes(path: Path) -> int:
    """Size of the marks that are there, without one that is cut off; 0 where there is no trace."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size - size % MARK_BYTES


def read(path: Path, skip_bytes: int = 0) -> list[Mark]:
    """The marks of a trace, in order; none where there is no trace. One that is cut off or damaged ends them.

    Args:
        skip_bytes: Size of the part that is known already: whole marks.
    """
    try:
        with documents.open_regular(path) as file:
            file.seek(skip_bytes)
            data = file.read()
    except OSError:
        return []
    whole = len(data) - len(data) % _MARK.size
    marks = []
    last_s = 0.0
    for kind, at_s in _MARK.iter_unpack(data[:whole]):
        if kind > max(Kind) or not last_s <= at_s <= documents.LONGEST_S:
            break
        marks.append(Mark(Kind(kind), at_s))
        last_s = at_s
    return marks


def iterations(marks: Iterable[Mark]) -> Iterator[Iteration]:
    """Each from the end of the one before it to its own, waits between them included; the first mark ends none."""
    ends = (mark for mark in marks if mark.kind in (Kind.TRAIN, Kind.EVAL))
    for earlier, later in pairwise(ends):
        yield Iteration(later.kind, earlier.at_s, later.at_s)


def held(marks: Iterable[Mark]) -> Iterator[tuple[Iteration, float]]:
    """Each iteration with the part of its time, seconds, during which the job had its turn."""
    last: Mark | None = None
    away_from_s: float | None = None
    away_s = 0.0
    for mark in marks:
        match mark.kind:
            case Kind.TURN_ENDS:
                away_from_s = mark.at_s
            case Kind.TURN_BEGINS if away_from_s is not None:
                away_s, away_from_s = away_s + mark.at_s - away_from_s, None
            case Kind.TRAIN | Kind.EVAL:
                if last is not None:
                    yield Iteration(mark.kind, last.at_s, mark.at_s), mark.at_s - last.at_s - away_s
                last, away_s = mark, 0.0
