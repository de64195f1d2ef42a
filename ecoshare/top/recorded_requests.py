"""Requests of a service of a recorded run at any moment."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from ecoshare.queue.queue_documents import ServiceStatus
from ecoshare.serving.request_intervals import RECENT_S, RequestInterval, percentiles_s


class RecordedRequests:
    """Requests of the last attempt of a service."""

    def __init__(self, intervals: Iterable[RequestInterval]) -> None:
        """Requests of these intervals, in order."""
        self._intervals = list(intervals)
        self._ends_s = [each.at_s for each in self._intervals]
        self._arrived = [0, *accumulate(each.arrived for each in self._intervals)]
        self._late = [0, *accumulate(each.late for each in self._intervals)]
        self._unanswered = [0, *accumulate(each.failed + each.refused for each in self._intervals)]

    def at(self, at_s: float, target_s: float) -> ServiceStatus:
        """Requests up to a time (s), for a service with this target (s) of the 99th percentile."""
        known = bisect_right(self._ends_s, at_s)
        recent = self._intervals[bisect_right(self._ends_s, at_s - RECENT_S) : known]
        (p99_s,) = percentiles_s(recent, (99.0,))
        return ServiceStatus(
            target_s=target_s,
            arrived=self._arrived[known],
            late=self._late[known],
            unanswered=self._unanswered[known],
            p99_s=None if math.isnan(p99_s) else p99_s,
        )
