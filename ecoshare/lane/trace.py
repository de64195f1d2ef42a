"""Trace of a job: when each iteration ended, when the job had the turn, and the values that the script reports."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ecoshare.base import documents
from ecoshare.lane.files import of_attempt
from ecoshare.lane.tables.shared_memory import OwnFile

if TYPE_CHECKING:
    import numpy as np


_MARK = struct.Struct("<Bd")
MARK_BYTES = _MARK.size
_FLUSH_BYTES = 512 * _MARK.size
_MOST_ITERATIONS = 1_000_000
"""Most iterations in a trace, which stays below 10 MB or so. Later iterations are counted, but not marked."""


class Kind(IntEnum):
    """Kind of a mark."""

    TURN_BEGINS = 0
    TURN_ENDS = 1
    TRAIN = 2
    """A training iteration ended."""
    EVAL = 3
    """An inference iteration ended."""
    WAITS = 4
    """The job wants the turn again that it gave up of its own accord, to load data, say. Before, it was away.

    A job that hands over wants the turn at once, and has no such mark.
    """


class Mark(NamedTuple):
    """One moment of a job, in seconds since the run was opened."""

    kind: Kind
    at_s: float


class Iteration(NamedTuple):
    """An iteration, with the time between it and the one before."""

    kind: Kind
    from_s: float
    to_s: float


class Tracer:
    """Writes a job's trace. Marks that cannot be written are lost: no job fails because of its trace.

    A mark has nine bytes. The job itself writes its marks, because no other process sees its boundaries. It writes a
    few hundred at a time, at the latest when it gives up its turn. A killed job loses only the marks that were not yet
    written.
    """

    def __init__(self, path: Path, opened_s: float) -> None:
        """Open a trace at `path`.

        Args:
            path: Path of the trace.
            opened_s: Time (s) on the monotonic clock from which the times in the trace count.
        """
        self._opened_s = opened_s
        self._pid = os.getpid()
        self._iterations = 0
        self._marks = bytearray()
        self._file: OwnFile | None = None
        with contextlib.suppress(OSError):
            self._file = OwnFile(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def iteration(self, kind: Kind, at_s: float) -> None:
        """Mark the end of an iteration."""
        self._iterations += 1
        if self._iterations <= _MOST_ITERATIONS:
            self._marks += _MARK.pack(kind, at_s - self._opened_s)
            if len(self._marks) >= _FLUSH_BYTES:
                self.flush()

    def turn(self, kind: Kind, at_s: float) -> None:
        """Mark that the turn was taken or given up."""
        self._marks += _MARK.pack(kind, at_s - self._opened_s)
        if kind is Kind.TURN_ENDS:
            self.flush()

    def close(self) -> None:
        """Write the pending marks and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def flush(self) -> None:
        """Write the pending marks."""
        if self._file is not None and self._pid == os.getpid():  # not in a child that the script has forked
            try:
                os.write(self._file.number(), self._marks)
            except OSError as error:
                if error.errno is None:  # a signal handler of the script has raised it, such as a TimeoutError
                    raise
                self._file = None
        self._marks.clear()


def trace_path(folder: Path, attempt: int) -> Path:
    """Path of an attempt's trace, in the folder of its job."""
    return of_attempt(folder, "trace.bin", attempt)


def whole_bytes(path: Path) -> int:
    """Size (bytes) of the whole marks of a trace, without one that is cut off; 0 if there is no trace."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size - size % MARK_BYTES


def read(path: Path, skip_bytes: int = 0) -> list[Mark]:
    """Marks of a trace, in order; none if there is no trace. A mark that is cut off or damaged ends the list.

    Args:
        path: Path of the trace.
        skip_bytes: Size of the part that is already known: whole marks.
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


def columns(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Marks of a trace as two arrays of shape (n,): kinds, and times (s). The same marks as those of `read`.

    A trace of a million marks takes some milliseconds this way.
    """
    import numpy as np  # late: jobs import this module, and must not load numpy

    try:
        with documents.open_regular(path) as file:
            data = file.read()
    except OSError:
        data = b""
    marks = np.frombuffer(data, np.dtype([("kind", "u1"), ("at_s", "<f8")]), len(data) // MARK_BYTES)
    kinds, times_s = marks["kind"].copy(), marks["at_s"].copy()
    with np.errstate(invalid="ignore"):  # damaged bytes may be any number, NaN included
        is_good = (kinds <= max(Kind)) & (times_s <= documents.LONGEST_S) & (np.diff(times_s, prepend=0.0) >= 0.0)
    good = len(is_good) if is_good.all() else int(is_good.argmin())
    return kinds[:good], times_s[:good]


def iterations(marks: Iterable[Mark]) -> Iterator[Iteration]:
    """Each iteration, from the end of the one before to its own end, waits included. The first mark ends none."""
    ends = (mark for mark in marks if mark.kind in (Kind.TRAIN, Kind.EVAL))
    for earlier, later in pairwise(ends):
        yield Iteration(later.kind, earlier.at_s, later.at_s)


def held(marks: Iterable[Mark]) -> Iterator[tuple[Iteration, float]]:
    """Each iteration with the time (s) in it during which the job had its turn."""
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


class Reporter:
    """Writes reported values. A line that cannot be written is lost: no job fails because of its reports.

    The job itself writes the file, without a buffer: the controller reads it while the job runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._file: OwnFile | None = None

    def report(self, values: dict[str, float]) -> None:
        """Write one line. Do nothing in a child that the script has forked."""
        if self._pid != os.getpid():
            return
        line = json.dumps(values).encode() + b"\n"
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = OwnFile(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(self._file.number(), line)

    def close(self) -> None:
        """Close the file. Reports end here."""
        if self._file is not None:
            self._file.close()
            self._file = None


def reports_path(folder: Path, attempt: int) -> Path:
    """Path of an attempt's reports, in the folder of its job."""
    return of_attempt(folder, "reports.jsonl", attempt)
