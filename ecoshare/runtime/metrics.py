"""Reads how well a trial does, while it runs, from what it prints or reports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.jobs.metric import Metric
from ecoshare.lane.reports import reports_path

_MOST_LINE_BYTES = 1 << 16
"""A longer line is cut: a progress bar may never end its line."""


def values_of(metric: Metric, folder: Path, attempt: int) -> list[float]:
    """All values of an attempt that is over; it is the last of its job."""
    return MetricReader(metric, folder, attempt).read(over=True)


class MetricReader:
    """The values of one attempt, in the order in which it gave them."""

    def __init__(self, metric: Metric, folder: Path, attempt: int) -> None:
        """Nothing is read yet.

        Args:
            folder: The job's, whose logs are those of this attempt.
        """
        self._metric = metric
        printed = [folder / "stdout.log", folder / "stderr.log"]  # `logging` writes to the latter
        self._files = [_Growing(path) for path in (printed if metric.is_printed else [reports_path(folder, attempt)])]

    def read(self, over: bool = False) -> list[float]:
        """The values that are new since the last call.

        Args:
            over: Nothing more will be written, so a last line needs no end.
        """
        values = []
        for file in self._files:
            for line in file.lines(over):
                if (value := self._value(line)) is not None:
                    values.append(value)
        return values

    def _value(self, line: str) -> float | None:
        if self._metric.is_printed:
            return self._metric.find(line)
        try:
            reported = json.loads(line)
        except ValueError:
            return None  # cut off with its job
        value = reported.get(self._metric.text)
        return float(value) if value is not None else None


@dataclass(slots=True)
class _Growing:
    """A file that somebody else appends to."""

    path: Path
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def lines(self, over: bool) -> list[str]:
        """Whole lines that have been added since the last call; a return of the carriage ends a line, too."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except OSError:  # nothing was written yet
            added = b""
        self._offset += len(added)
        if not added and not (over and self._rest):
            return []
        *whole, rest = (self._rest + added).replace(b"\r", b"\n").split(b"\n")
        if over:
            whole, rest = [*whole, rest], b""
        self._rest = rest[-_MOST_LINE_BYTES:]
        return [line.decode(errors="replace") for line in whole if line]
