"""Requests of a service during a measurement of a setting, read as the service records them.

::

    setting applied      ▏
    requests.jsonl   ▏ second  ▏  second  ▏  second  ▏  second  ▏ not yet written
                                └──────────── figures ──────────┘

A request counts only if it arrived after the setting was applied: others have waited for answers at the setting before.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from ecoshare.core.service_targets import MUCH_LATE
from ecoshare.serving.request_intervals import (
    RequestInterval,
    against_target,
    call_times,
    mean_batch,
    percentiles_s,
    read_from,
    total,
)
from ecoshare.values.measurement import ServiceFigures

FEWEST = 100
"""Least number of answers that have a 99th percentile."""

_FEWEST_MISSES = 10
"""Least number of requests that miss the target, at which it is surely missed."""

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
        self._applied_s = self._began_s = 0.0
        self._intervals: list[RequestInterval] = []

    def applied(self, at_s: float) -> None:
        """Leave out the requests that arrived before a setting was applied, at a time (s) since the run was opened."""
        self._applied_s = self._began_s = at_s
        with suppress(FileNotFoundError):  # nothing has happened yet
            self._skip_bytes = self._path.stat().st_size  # a line is written at once, so none is cut here

    def begin(self, at_s: float) -> None:
        """Leave out the seconds that began before a time (s), too: the power is measured from then on."""
        self._began_s = at_s

    def look(self) -> None:
        """Read what has been recorded."""
        intervals, self._skip_bytes = read_from(self._path, self._skip_bytes)
        for each in intervals:
            if self._intervals or self._counts(each):
                self._intervals.append(each)

    @property
    def answered(self) -> int:
        """Number of answers so far."""
        return sum(each.answered for each in self._intervals)

    @property
    def surely_misses(self) -> bool:
        """Whether so many requests have missed the target that the setting cannot keep it."""
        requests, missed = against_target(self._intervals)
        return missed >= _FEWEST_MISSES and missed >= MUCH_LATE * requests

    def figures(self) -> ServiceFigures | None:
        """Figures so far; None if there are too few answers for them."""
        found, times = total(self._intervals), call_times(self._intervals)
        batch = mean_batch(found.batches)
        if batch is None or not times or (found.answered < FEWEST and not self.surely_misses):
            return None
        return ServiceFigures(
            arrived=found.arrived,
            missed=against_target(self._intervals)[1],
            rate_per_s=found.arrived / (self._intervals[-1].at_s - self._intervals[0].from_s),
            p99_s=found.p99_s,
            batch=batch,
            batch_s=sum(each.sum_s for each in times) / sum(each.calls for each in times),
            rates_per_s=tuple(
                each.arrived / (each.at_s - each.from_s) for each in self._intervals if each.at_s > each.from_s
            ),
            full_s=tuple((each.size, each.mean_s) for each in times if each.calls >= _FEWEST_CALLS),
        )

    def _counts(self, interval: RequestInterval) -> bool:
        """Whether all answers of an interval are to requests that arrived after the setting was applied."""
        (longest_s,) = percentiles_s([interval], (100.0,))
        first_arrived_s = interval.from_s if math.isnan(longest_s) else interval.from_s - longest_s
        return interval.from_s >= self._began_s and first_arrived_s >= self._applied_s
