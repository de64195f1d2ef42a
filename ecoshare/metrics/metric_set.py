"""Samples of metrics at one moment, in the form of the library `prometheus_client`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ecoshare.metrics.families import FAMILIES, MetricFamily, MetricType


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
