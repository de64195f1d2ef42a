"""Requests of a service during a measurement of a setting, read as the service records them.

::

    requests.jsonl   ▏ before ▏  second  ▏  second  ▏  second  ▏ not yet written
                              └──────────── figures ───────────┘
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ecoshare.serving.request_intervals import RequestInterval, call_times, mean_batch, read_from, total
from ecoshare.values.measurement import ServiceFigures

FEWEST = 100
"""Least number of answers that have a 99th percentile."""

_FEWEST_LATE, _MUCH_LATE = 10, 0.05
"""Least number of late requests, and their least part of all, at which a target is surely missed: 0.01 keeps it."""

_FEWEST_CALLS = 5
"""Least number of calls with as many requests that have a mean time."""


class MeasuredRequests:
    """Requests of one service from a moment on."""

    def __init__(self, path: Path) -> None:
        """Requests that are not watched yet.

        Args:
            path: Record of the service.
        """
        self._path = path
        self._skip_bytes = 0
        self._began_s = 0.0
        self._intervals: list[RequestInterval] = []

    def begin(self, at_s: float) -> None:
        """Watch the requests from a time (s) on, which counts from the opening of the run."""
        self._began_s = at_s
        with suppress(FileNotFoundError):  # nothing has happened yet
            self._skip_bytes = self._path.stat().st_size  # a line is written at once, so none is cut here

    def look(self) -> None:
        """Read what has been recorded. A second in which the watch began is left out."""
        intervals, self._skip_bytes = read_from(self._path, self._skip_bytes)
        self._intervals += [each for each in intervals if each.from_s >= self._began_s]

    @property
    def answered(self) -> int:
        """Number of answers so far."""
        return sum(each.answered for each in self._intervals)

    @property
    def surely_misses(self) -> bool:
        """Whether so many requests are late that the setting cannot keep the target."""
        late, arrived = self._late, sum(each.arrived for each in self._intervals)
        return late >= _FEWEST_LATE and late >= _MUCH_LATE * arrived

    def figures(self) -> ServiceFigures | None:
        """Figures so far; None if there are too few answers for them."""
        found, times = total(self._intervals), call_times(self._intervals)
        batch = mean_batch(found.batches)
        if batch is None or not times or (found.answered < FEWEST and not self.surely_misses):
            return None
        return ServiceFigures(
            arrived=found.arrived,
            late=self._late,
            rate_per_s=found.arrived / (self._intervals[-1].at_s - self._intervals[0].from_s),
            p99_s=found.p99_s,
            batch=batch,
            batch_s=sum(each.sum_s for each in times) / sum(each.calls for each in times),
            full_s=tuple((each.size, each.mean_s) for each in times if each.calls >= _FEWEST_CALLS),
        )

    @property
    def _late(self) -> int:
        return sum(each.late + each.refused + each.failed for each in self._intervals)
