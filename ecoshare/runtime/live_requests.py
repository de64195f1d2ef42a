"""Requests of the services of a run so far, for displays and clients of a queue."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence

from ecoshare.base.service import ServiceSpec
from ecoshare.lane.serving.request_intervals import RECENT_S, RequestCounts, RequestInterval, percentiles_s
from ecoshare.record.run_view import ServiceStatus

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

    def view(self, target_s: float, now_s: float) -> ServiceStatus:
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
        return ServiceStatus(
            target_s=target_s,
            arrived=self._arrived,
            late=self._late,
            unanswered=self._unanswered,
            p99_s=self._p99_s,
        )


class ServiceViews:
    """Requests of the services of a run."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """No request so far.

        Args:
            now_s: Returns the time (s) since the run was opened.
        """
        self._now_s = now_s
        self._recent: dict[str, tuple[int, RecentRequests]] = {}  # number and requests of the last attempt
        self._counts: dict[str, RequestCounts] = defaultdict(RequestCounts)

    def hear(self, name: str, attempt: int, found: Sequence[RequestInterval]) -> None:
        """Count the requests of new intervals of a service.

        Args:
            name: Name of the service.
            attempt: Number of its attempt.
            found: The intervals.
        """
        last = self._recent.get(name)
        if last is None or last[0] != attempt:
            last = self._recent[name] = (attempt, RecentRequests())
        last[1].add(found)
        self._counts[name].add(found)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the requests of all other services."""
        for kept in (self._recent, self._counts):
            for name in kept.keys() - names:
                del kept[name]

    def view(self, name: str, service: ServiceSpec) -> ServiceStatus:
        """Requests of the last attempt of a service, as far as they were heard."""
        _, recent = self._recent.get(name, (0, RecentRequests()))
        return recent.view(service.p99_s, self._now_s())

    def counts(self, name: str) -> RequestCounts:
        """Sums over the requests of a service in this session, as far as they were heard."""
        return self._counts[name]
