"""Reads how well a trial does, while it runs, from what it prints or reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.common import documents
from ecoshare.jobs.metric import Metric
from ecoshare.lane.reports import reports_path

_MOST_LINE_BYTES = 1 << 12
"""Of a longer line that has not ended the last part is kept: a progress bar may never end its line."""

_MOST_BYTES = 1 << 20
"""Read in a look: what a script prints faster than that is read later, and not all in memory at once."""


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
        """The values that are new since the last call, of as much as is read in a look.

        Args:
            over: Nothing more will be written, so all is read, and a last line needs no end.
        """
        return [value for file in self._files for text in file.texts(over) for value in self._values(text)]

    def _values(self, text: str) -> list[float]:
        if self._metric.is_printed:
            return self._metric.values(text)
        found = (_reported(line, self._metric.text) for line in text.splitlines())
        return [value for value in found if value is not None]


def _reported(line: str, name: str) -> float | None:
    """The value under a name in a line of reports; None where it has none, was cut off, or is damaged."""
    try:
        return float(json.loads(line)[name])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


@dataclass(slots=True)
class _Growing:
    """A file that somebody else appends to."""

    path: Path
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def texts(self, over: bool) -> Iterator[str]:
        """Whole lines that have been added since the last call, some at a time; a carriage return ends one, too."""
        try:
            with documents.open_regular(self.path) as file:
                file.seek(self._offset)
                while added := file.read(_MOST_BYTES):
                    self._offset += len(added)
                    yield self._whole(added)
                    if not over:
                        return
        except OSError:  # nothing was written yet
            pass
        if over:
            yield self._whole(b"\n")

    def _whole(self, added: bytes) -> str:
        """The lines that end by what was added; the rest is kept for the next time."""
        known = self._rest + added
        end = max(known.rfind(b"\n"), known.rfind(b"\r")) + 1
        self._rest = known[end:][-_MOST_LINE_BYTES:]
        return known[:end].decode(errors="replace")
