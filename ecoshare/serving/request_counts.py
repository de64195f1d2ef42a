"""Sums over all requests of a service so far, which cost little however many requests there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ecoshare.serving.request_intervals import RequestInterval
from ecoshare.serving.request_record import LATENCY_BOUNDS_S


@dataclass(slots=True)
class RequestCounts:
    """Requests of a service, in all attempts of this session of the run.

    Attributes:
        latencies: Number of latencies in each bucket of `LATENCY_BOUNDS_S`, and above the last bound.
        latency_s: Sum (s) of all latencies.
        batches: Number of calls of the handler, by number of requests.
        longest_queue: Most requests that waited at once.
    """

    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    latency_s: float = 0.0
    batches: Counter[int] = field(default_factory=Counter)
    longest_queue: int = 0
    _results: Counter[str] = field(default_factory=Counter)

    def add(self, found: Iterable[RequestInterval]) -> None:
        """Count the requests of new intervals."""
        for each in found:
            for place, count in each.buckets.items():
                self.latencies[place] += count
            self.latency_s += each.latency_s
            self.batches.update(each.batches)
            self.longest_queue = max(self.longest_queue, each.longest_queue)
            self._results.update(
                in_time=each.answered - each.late,
                late=each.late,
                failed=each.failed,
                refused=each.refused,
                cancelled=each.cancelled,
            )

    @property
    def results(self) -> Mapping[str, int]:
        """Number of requests by result: in_time, late, failed, refused, cancelled."""
        return {name: self._results[name] for name in ("in_time", "late", "failed", "refused", "cancelled")}
