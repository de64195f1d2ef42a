"""Requests of the services of a run so far, for displays and metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from ecoshare.record.run_view import ServiceView
from ecoshare.runtime.recent_requests import RecentRequests
from ecoshare.serving.request_counts import RequestCounts
from ecoshare.serving.request_intervals import RequestInterval
from ecoshare.values.service import ServiceSpec


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

    def view(self, name: str, service: ServiceSpec) -> ServiceView:
        """Requests of the last attempt of a service, as far as they were heard."""
        _, recent = self._recent.get(name, (0, RecentRequests()))
        return recent.view(service.p99_s, self._now_s())

    def counts(self, name: str) -> RequestCounts:
        """Sums over the requests of a service in this session, as far as they were heard."""
        return self._counts[name]
