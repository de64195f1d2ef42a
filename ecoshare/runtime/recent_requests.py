"""Requests of a service of late, for displays of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from ecoshare.record.run_view import ServiceView
from ecoshare.serving.request_intervals import RECENT_S, RequestInterval, percentiles_s

_REFRESH_S = 5.0
"""Least time (s) between two percentiles: one takes some milliseconds, and a run may have many services."""


class RecentRequests:
    """Requests of one attempt of a service."""

    def __init__(self) -> None:
        """No request so far."""
        self._arrived = self._late = self._unanswered = 0
        self._recent: deque[RequestInterval] = deque()
        self._p99_s: float | None = None
        self._known_s = -math.inf  # time of the last percentile

    def add(self, found: Iterable[RequestInterval]) -> None:
        """Count the requests of new intervals."""
        for each in found:
            self._arrived += each.arrived
            self._late += each.late
            self._unanswered += each.failed + each.refused
            self._recent.append(each)

    def view(self, target_s: float, now_s: float) -> ServiceView:
        """View of the service.

        Args:
            target_s: Target (s) of the 99th percentile of latencies.
            now_s: Time (s) since the run was opened.
        """
        while self._recent and self._recent[0].at_s < now_s - RECENT_S:
            self._recent.popleft()
        if now_s - self._known_s >= _REFRESH_S:
            self._known_s = now_s
            (p99_s,) = percentiles_s(self._recent, (99.0,))
            self._p99_s = None if math.isnan(p99_s) else p99_s
        return ServiceView(target_s, self._arrived, self._late, self._unanswered, self._p99_s)
