"""Samples of a service, which the export of a run and a queue have both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoshare.metrics.families import (
    BATCH_BOUNDS,
    SERVICE_BATCH,
    SERVICE_LATENCY,
    SERVICE_MISSED,
    SERVICE_PEAK,
    SERVICE_REQUESTS,
    SERVICE_TARGET,
)
from ecoshare.metrics.metric_set import MetricSet
from ecoshare.serving.request_record import LATENCY_BOUNDS_S


@dataclass(frozen=True, slots=True)
class ServiceSamples:
    """Requests of a service.

    Attributes:
        target_s: Target (s) of the 99th percentile of latencies.
        missed_minutes: Number of minutes in which the target was missed.
        results: Number of requests by result.
        latencies: Number of latencies in each bucket of `LATENCY_BOUNDS_S`, and above the last bound.
        latency_s: Sum (s) of all latencies.
        batches: Number of calls of the handler, by number of requests.
        longest_queue: Most requests that waited at once.
    """

    target_s: float
    missed_minutes: int
    results: Mapping[str, int]
    latencies: Sequence[int]
    latency_s: float
    batches: Mapping[int, int]
    longest_queue: int

    def add_to(self, metrics: MetricSet, name: str) -> None:
        """Add the samples of the service of this name."""
        metrics.add(SERVICE_TARGET, self.target_s, name)
        metrics.add(SERVICE_MISSED, 60 * self.missed_minutes, name)
        for result, count in self.results.items():
            metrics.add(SERVICE_REQUESTS, count, name, result)
        metrics.add_histogram(SERVICE_LATENCY, LATENCY_BOUNDS_S, self.latencies, self.latency_s, name)
        calls = [0] * (len(BATCH_BOUNDS) + 1)
        for size, count in self.batches.items():
            calls[bisect_left(BATCH_BOUNDS, size)] += count
        together = sum(size * count for size, count in self.batches.items())
        metrics.add_histogram(SERVICE_BATCH, BATCH_BOUNDS, calls, together, name)
        metrics.add(SERVICE_PEAK, self.longest_queue, name)
