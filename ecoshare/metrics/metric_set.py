"""Samples of metrics at one moment, in the form of the library `prometheus_client`."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ecoshare.lane.serving.request_record import LATENCY_BOUNDS_S
from ecoshare.metrics.families import (
    BATCH_BOUNDS,
    FAMILIES,
    SERVICE_BATCH,
    SERVICE_LATENCY,
    SERVICE_MISSED,
    SERVICE_PEAK,
    SERVICE_REQUESTS,
    SERVICE_TARGET,
    MetricFamily,
    MetricType,
)


class MetricSet(Collector):
    """Samples, by metric. A value that is not known has no sample."""

    def __init__(self, constant: Mapping[str, str]) -> None:
        """Set without a sample.

        Args:
            constant: Labels that all samples have.
        """
        self._names, self._values = tuple(constant), [_printable(each) for each in constant.values()]
        self._found: dict[MetricFamily, Metric] = {}

    def add(self, family: MetricFamily, value: float | None, *labels: str) -> None:
        """Add a sample of a counter or gauge; none if the value is not known.

        Args:
            family: The metric.
            value: The value, in the unit of the metric.
            labels: Values of its labels, in their order.
        """
        if value is None or math.isnan(value):
            return
        metric = self._metric(family)
        assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily), family.name
        metric.add_metric(self._labels(labels), float(value))

    def add_info(self, family: MetricFamily, *labels: str) -> None:
        """Add a sample that is always 1, with the values of its labels in their order."""
        metric = self._metric(family)
        assert isinstance(metric, InfoMetricFamily), family.name
        named = dict(zip(family.labels, map(_printable, labels), strict=True))
        metric.add_metric(list(self._values), named)

    def add_histogram(
        self, family: MetricFamily, bounds: Sequence[float], counts: Iterable[int], total: float, *labels: str
    ) -> None:
        """Add the samples of a histogram.

        Args:
            family: The metric.
            bounds: Upper bounds of the buckets, ascending, without infinity.
            counts: Number of values in each bucket, and above the last bound.
            total: Sum of all values.
            labels: Values of its labels, in their order.
        """
        metric = self._metric(family)
        assert isinstance(metric, HistogramMetricFamily), family.name
        up_to = accumulate(counts)
        names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        buckets = list(zip(names, up_to, strict=True))
        metric.add_metric(self._labels(labels), buckets, total)

    def collect(self) -> Iterator[Metric]:
        """Metrics that have a sample, in the order of `FAMILIES`."""
        return (self._found[family] for family in FAMILIES if family in self._found)

    def _labels(self, labels: Sequence[str]) -> list[str]:
        return [*self._values, *map(_printable, labels)]

    def _metric(self, family: MetricFamily) -> Metric:
        if (found := self._found.get(family)) is None:
            names = (*self._names, *family.labels)
            match family.type:
                case MetricType.COUNTER:
                    found = CounterMetricFamily(family.base, family.help, labels=names, unit=family.unit)
                case MetricType.GAUGE:
                    found = GaugeMetricFamily(family.base, family.help, labels=names, unit=family.unit)
                case MetricType.HISTOGRAM:
                    found = HistogramMetricFamily(family.base, family.help, labels=names, unit=family.unit)
                case MetricType.INFO:
                    found = InfoMetricFamily(family.base, family.help, labels=self._names)
            self._found[family] = found
        return found


def _printable(value: str) -> str:
    """Value of a label, with a name for each byte that is no text."""
    return value.encode(errors="backslashreplace").decode()


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
