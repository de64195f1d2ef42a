"""Reads the times at which requests arrive from a file, and tells its mistakes with their places.

Three forms are known, and told apart by the first character::

    arrival_s,...          CSV with a header: the column `arrival_s` has the time of each arrival in seconds
    [0.031, 0.012, ...]    JSON list of gaps in seconds, each before its request (Orion's inter_arrival_times.json)
    {"time": 60, ...}      workload of DISB: a task has a trace (ms), a period or a Poisson process, for `time` seconds
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final, TypeGuard

from ecoshare.base import documents
from ecoshare.jobs.quantities import MAX_DURATION_S, quoted

MOST_ARRIVALS: Final = 1_000_000
COLUMN: Final = "arrival_s"

_MOST_BYTES: Final = 64 * 2**20
_MOST_PROBLEMS: Final = 10
"""Most mistakes of one file that are reported: more of them tend to have one cause."""

_TIMED: Final = ("trace", "periodic", "poisson")
"""Loads of DISB that give times."""

_BREAK = re.compile(r"\r\n|\r|\n")
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """Result of reading a trace.

    Attributes:
        arrivals_s: Times (s) of the arrivals in order, from 0 on; to be ignored if there are problems.
        problems: Mistakes, one line each, which begin with the file and the place in it.
    """

    arrivals_s: list[float]
    problems: tuple[str, ...] = ()


def read_trace(path: Path, shown: str, task: str = "") -> RequestTrace:
    """Read a trace.

    Args:
        path: Path of the file.
        shown: Name of the file in messages.
        task: Id of the task of a DISB workload; empty for its only task.
    """
    reading = _Reading(shown)
    try:
        reading.read(path, task)
        if not reading.arrivals_s and not reading.problems:
            reading.stop("", "it has no arrivals")
    except _Stop:
        pass
    return RequestTrace(reading.arrivals_s, tuple(reading.problems))


class _Stop(Exception):
    """Raised to stop reading; it never leaves this module."""


@dataclass(slots=True)
class _Reading:
    """A file that is being read."""

    shown: str
    arrivals_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    text: str = ""

    def note(self, place: str, what: str) -> None:
        """Note a problem. `place` is empty, or has line and column with a colon before each."""
        self.problems.append(f"{self.shown}{place}: {what}")
        if len(self.problems) >= _MOST_PROBLEMS:
            raise _Stop

    def stop(self, place: str, what: str) -> None:
        """Note a problem, and read no further."""
        self.note(place, what)
        raise _Stop

    def read(self, path: Path, task: str) -> None:
        try:
            data = documents.read_begin(path, _MOST_BYTES)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return self.stop("", f"it cannot be read: {reason.lower()}")
        if len(data) > _MOST_BYTES:
            self.stop("", f"it is larger than {_MOST_BYTES // 2**20} MiB")
        try:
            self.text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self.stop(f":{line}", "it is not UTF-8 text from here on")
        first = self.text.lstrip()[:1]
        if first not in ("[", "{"):
            self._csv()
        else:
            self._json(task)
        if task and first != "{":
            self.stop("", f"it has no tasks, so there is no task {quoted(task)}")

    def add(self, values: Iterable[tuple[int, Any]], place: Callable[[int], str], unit_s: float, ordered: bool) -> None:
        """Add times or gaps.

        Args:
            values: Number of each value and the value.
            place: Returns the place of the value with a number.
            unit_s: Length (s) of the unit of the values.
            ordered: Whether the values are times, which must be in order.
        """
        before, what = 0.0, "time" if ordered else "gap"
        for count, (number, value) in enumerate(values):
            if count == MOST_ARRIVALS:
                self.stop(place(number), f"more than {MOST_ARRIVALS:,} arrivals")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not abs(value) <= MAX_DURATION_S:  # also false for NaN
                self.note(place(number), f"expected a {what} as a number, got {_shown(value)}")
            elif value < 0:
                self.note(place(number), f"a {what} below 0: {value:.15g}")
            elif ordered and value < before:
                self.note(place(number), f"{value:.15g} follows {before:.15g}: the times must be in order")
            else:
                before = value
                self.arrivals_s.append(value * unit_s)

    # CSV

    def _csv(self) -> None:
        rows = csv.reader(io.StringIO(self.text, newline=""), skipinitialspace=True)
        try:
            header = [name.strip() for name in next(rows, [])]
            if COLUMN not in header:
                named = f"; it has {', '.join(map(quoted, header[:10]))}" if any(header) else ""
                self.stop(":1:1", f"the header has no column '{COLUMN}'{named}")
            column = header.index(COLUMN)
            self.add(_cells(rows, column), lambda line: self._cell(line, column), 1.0, ordered=True)
        except csv.Error as error:
            self.stop(f":{rows.line_num}", f"it is not CSV: {error}")

    def _cell(self, line: int, column: int) -> str:
        """Place of a cell; its column is told only where no cell is quoted."""
        written = _BREAK.split(self.text)[line - 1]
        cells = written.split(",")
        if '"' in written or column >= len(cells):
            return f":{line}"
        before, cell = sum(len(each) + 1 for each in cells[:column]), cells[column]
        return f":{line}:{before + 1 + len(cell) - len(cell.lstrip())}"

    # JSON

    def _json(self, task: str) -> None:
        try:
            value = json.loads(self.text)
        except json.JSONDecodeError as error:
            return self.stop(f":{error.lineno}:{error.colno}", f"it is not JSON: {error.msg.lower()}")
        except (ValueError, RecursionError) as error:
            return self.stop("", f"it is not JSON that can be read: {error}")
        if isinstance(value, list):
            self.add(enumerate(value), self._place, 1.0, ordered=False)
            self.arrivals_s = list(accumulate(self.arrivals_s))
        else:
            self._disb(value, task)

    def _place(self, *steps: str | int) -> str:
        """Place of the value under these keys and numbers, which exist."""
        index = _BLANK.match(self.text, 0).end()  # type: ignore[union-attr]  # it matches everywhere
        for step in steps:
            index = self._step(index + 1, step)
        line, before = self.text.count("\n", 0, index) + 1, self.text.rfind("\n", 0, index)
        return f":{line}:{index - before}"

    def _step(self, index: int, step: str | int) -> int:
        """Index of the value under a key or number of the mapping or list with the first entry after `index`."""
        count = 0
        while True:
            index = self._blanks(index, ",")
            key: str | int = count
            if isinstance(step, str):
                key, index = _DECODER.raw_decode(self.text, index)
                index = self._blanks(index, ":")
            if key == step:
                return index
            _, index = _DECODER.raw_decode(self.text, index)
            count += 1

    def _blanks(self, index: int, sign: str) -> int:
        """Index after blanks, one sign that may stand between them, and more blanks."""
        index = _BLANK.match(self.text, index).end()  # type: ignore[union-attr]
        if self.text[index] == sign:
            index = _BLANK.match(self.text, index + 1).end()  # type: ignore[union-attr]
        return index

    # DISB

    def _disb(self, workload: dict[str, Any], task: str) -> None:
        tasks = workload.get("tasks")
        if not isinstance(tasks, list) or not tasks or not all(isinstance(each, dict) for each in tasks):
            return self.stop(self._place(), "expected a list of gaps, or a DISB workload with a list 'tasks'")
        number = self._chosen([str(each.get("id")) for each in tasks], task)
        load = tasks[number].get("load")
        if not isinstance(load, dict) or "type" not in load:
            return self.stop(self._place("tasks", number), "the task has no 'load' with a 'type'")
        kind, steps = load["type"], ("tasks", number, "load")
        if kind not in _TIMED:
            return self.stop(self._place(*steps, "type"), _untimed(kind))
        until_s = workload.get("time", math.inf if kind == "trace" else None)
        if not _is_positive(until_s):
            place = self._place("time") if "time" in workload else ""
            return self.stop(place, f"expected a 'time' in seconds above 0, got {_shown(until_s)}")
        if kind == "trace":
            times = load.get("trace")
            if not isinstance(times, list):
                return self.stop(self._place(*steps), "the load has no list 'trace' of times in milliseconds")
            self.add(enumerate(times), partial(self._place, *steps, "trace"), 1e-3, ordered=True)
            self.arrivals_s = [at_s for at_s in self.arrivals_s if at_s < until_s]
            return None
        rate = load.get("frequency")
        if not _is_positive(rate):
            place = self._place(*steps, "frequency") if "frequency" in load else self._place(*steps)
            return self.stop(place, f"expected a 'frequency' above 0, got {_shown(rate)}")
        if rate * until_s > MOST_ARRIVALS:
            self.stop(self._place(*steps, "frequency"), f"more than {MOST_ARRIVALS:,} arrivals")
        self.arrivals_s = _periodic(rate, until_s) if kind == "periodic" else _poisson(rate, until_s)
        return None

    def _chosen(self, ids: list[str], task: str) -> int:
        if task in ids:
            return ids.index(task)
        listed = ", ".join(ids[:10])
        if task:
            close = get_close_matches(task[:100], ids, n=1)
            hint = f"did you mean {quoted(close[0])}?" if close else f"it has {listed}"
            self.stop("", f"it has no task {quoted(task)}; {hint}")
        elif len(ids) > 1:
            self.stop("", f"it has {len(ids)} tasks; choose one with `task:`: {listed}")
        return 0


def _periodic(rate_per_s: float, until_s: float) -> list[float]:
    return [count / rate_per_s for count in range(math.ceil(rate_per_s * until_s))]


def _poisson(rate_per_s: float, until_s: float) -> list[float]:
    random, at_s, found = Random(0), 0.0, list[float]()
    while (at_s := at_s + random.expovariate(rate_per_s)) < until_s:
        found.append(at_s)
    return found


def _untimed(kind: object) -> str:
    if kind == "continuous":
        return "a continuous load has no times: each request follows an answer, as with `requests: {clients: 1}`"
    if kind == "dependent":
        return "a dependent load has no times: its requests follow the answers of other tasks"
    return f"unknown load {_shown(kind)}; known are {', '.join(_TIMED)}"


def _is_positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _cells(rows: Any, column: int) -> Iterator[tuple[int, object]]:
    """Line of each row of a CSV reader and the number in its column. Empty lines are left out."""
    for row in rows:
        if any(cell.strip() for cell in row):
            yield rows.line_num, _number(row[column]) if column < len(row) else None


def _number(text: str) -> object:
    """Number of a cell; the text itself if it is none."""
    try:
        return text if "_" in text else float(text)
    except ValueError:
        return text


def _shown(value: object) -> str:
    return quoted(value) if value is None or isinstance(value, str | list | dict) else str(value)[:30]
