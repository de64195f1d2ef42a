"""Reads the metric of a running trial from its printed output or its reports."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.base import documents
from ecoshare.jobs.sweep import Metric
from ecoshare.lane.files import outputs
from ecoshare.lane.trace import reports_path

_MOST_LINE_BYTES = 1 << 12
"""Bytes kept of the end of an unfinished line: a progress bar may never end its line."""


_MOST_REPORTS = 1000
"""Values of one name that a profile keeps."""

_MOST_BYTES = 1 << 20
"""Bytes read in one call: faster output is read by later calls, so that memory stays bounded."""


def values_of(metric: Metric, folder: Path, attempt: int) -> list[float]:
    """All values of a finished attempt, which must be the last attempt of its job."""
    return MetricReader(metric, folder, attempt).read(over=True)


def reported(folder: Path, attempt: int) -> dict[str, tuple[float | None, ...]]:
    """First values that an attempt has reported, by name and in order; None for one that is not finite.

    Damaged lines and values beyond `_MOST_REPORTS` of a name are left out.
    """
    found: dict[str, list[float | None]] = {}
    for text in _Growing(reports_path(folder, attempt)).texts(over=False):
        for line in text.splitlines():
            with contextlib.suppress(ValueError, TypeError, AttributeError, OverflowError):
                for name, value in json.loads(line).items():
                    if len(values := found.setdefault(name, [])) < _MOST_REPORTS:
                        values.append(float(value) if math.isfinite(value) else None)
    return {name: tuple(values) for name, values in found.items() if values}


class MetricReader:
    """Reader of the metric values of one attempt, in the order of the output."""

    def __init__(self, metric: Metric, folder: Path, attempt: int) -> None:
        """Prepare to read; nothing is read yet.

        Args:
            metric: Metric to look for.
            folder: Folder of the job; its logs must be those of this attempt.
            attempt: Number of the attempt.
        """
        self._metric = metric
        printed = outputs(folder)  # `logging` writes to the second
        self._files = [_Growing(path) for path in (printed if metric.is_printed else [reports_path(folder, attempt)])]

    def read(self, over: bool = False) -> list[float]:
        """New values since the last call, from at most `_MOST_BYTES` of each file.

        Args:
            over: Whether the attempt is over. If so, everything is read, and the last line needs no end.
        """
        return [value for file in self._files for text in file.texts(over) for value in self._values(text)]

    def _values(self, text: str) -> list[float]:
        if self._metric.is_printed:
            return self._metric.values(text)
        found = (_reported_value(line, self._metric.text) for line in text.splitlines())
        return [value for value in found if value is not None]


def _reported_value(line: str, name: str) -> float | None:
    """Value under a name in a line of reports; None if the line has none, was cut off, or is damaged."""
    try:
        return float(json.loads(line)[name])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


@dataclass(slots=True)
class _Growing:
    """File to which another process appends."""

    path: Path
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def texts(self, over: bool) -> Iterator[str]:
        """Yield whole lines added since the last call, in blocks; a carriage return ends a line, too."""
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
        """Lines that `added` completes; the unfinished rest is kept for the next call."""
        known = self._rest + added
        end = max(known.rfind(b"\n"), known.rfind(b"\r")) + 1
        self._rest = known[end:][-_MOST_LINE_BYTES:]
        return known[:end].decode(errors="replace")
