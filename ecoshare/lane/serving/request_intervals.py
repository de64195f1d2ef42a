"""Reads what a service did: the lines that `request_record` writes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from ecoshare.base import documents
from ecoshare.lane.serving.request_record import COUNTS, DIGITS, LATENCY_BOUNDS_S, LONGEST_US

RECENT_S = 10.0
"""Time (s) over which displays take the percentile of the last requests."""

_LONGEST_LINE = 1 << 20
"""Longest line (bytes) that is read. A histogram of an interval takes some 10 kB at most."""


@dataclass(frozen=True, slots=True)
class RequestInterval:
    """An interval of about a second in which a service had requests.

    Each request that arrived is refused, answered, failed or cancelled in this interval or in a later one.

    Attributes:
        from_s: Time (s) of the first event, since the run was opened.
        at_s: Time (s) of the end.
        arrived: Number of requests that came, refused ones included.
        answered: Number of requests that were answered.
        failed: Number of requests for which the handler failed, or that waited when the service was closed.
        refused: Number of requests that came when the queue was full.
        cancelled: Number of requests that the client gave up before their batch.
        late: Number of answers after the time at which they were due.
        batches: Number of calls of the handler, by number of requests.
        longest_queue: Most requests that waited at once.
        latencies: Latencies (us) of the answers: an encoded HdrHistogram; empty if there are none.
        took: Sums over the calls that answered, by number of requests: of their times (s), of the natural logarithms of
            these, and of the squares of the logarithms. Records of earlier versions have none.
        woke: Number of requests that came to the idle service, and the sum of the times (s) until it asked for the
            turn.
        buckets: Number of latencies by the place of their upper bound in `LATENCY_BOUNDS_S`. Records of earlier
            versions have none.
        latency_s: Sum (s) of the latencies; 0 in records of earlier versions.
    """

    from_s: float
    at_s: float
    arrived: int
    answered: int
    failed: int
    refused: int
    cancelled: int
    late: int
    batches: dict[int, int]
    longest_queue: int
    latencies: str
    took: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    woke: tuple[int, float] = (0, 0.0)
    buckets: dict[int, int] = field(default_factory=dict)
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Sums over intervals. Times (s) run from the arrival of a request to its answer; NaN if no answer has one.

    Attributes:
        arrived: Number of requests that came, refused ones included.
        answered: Number of requests that were answered.
        failed: Number of requests that failed.
        refused: Number of requests that were refused.
        cancelled: Number of requests that were cancelled.
        late: Number of late answers.
        batches: Number of calls of the handler, by number of requests.
        longest_queue: Most requests that waited at once.
        mean_s: Mean latency (s).
        p50_s: 50th percentile (s). Percentiles are exact to three significant digits.
        p90_s: 90th percentile (s).
        p99_s: 99th percentile (s).
        p999_s: 99.9th percentile (s).
        max_s: Longest latency (s).
    """

    arrived: int
    answered: int
    failed: int
    refused: int
    cancelled: int
    late: int
    batches: dict[int, int]
    longest_queue: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float
    max_s: float


def read(path: Path) -> list[RequestInterval]:
    """All intervals of a record, in order; none if there is no record. Cut or damaged lines are left out."""
    return read_from(path, 0)[0]


def read_from(path: Path, skip_bytes: int) -> tuple[list[RequestInterval], int]:
    """Intervals after the part that is known, and the size (bytes) of the part that is known now.

    A last line without its end is not yet known: it may still be written.

    Args:
        path: Path of the record.
        skip_bytes: Size of the part that is known: 0, or the size that an earlier call returned.
    """
    try:
        with documents.open_regular(path) as file:
            file.seek(skip_bytes)
            data = file.read()
    except OSError:
        return [], skip_bytes
    whole = data[: data.rfind(b"\n") + 1]
    intervals = [found for line in whole.splitlines() if (found := interval(line)) is not None]
    return intervals, skip_bytes + len(whole)


def total(intervals: Iterable[RequestInterval]) -> RequestTotals:
    """Sums of the counts, and the percentiles of all latencies together. A damaged histogram is left out.

    Raises:
        ImportError: The library `hdrhistogram` is missing, and there are latencies.
    """
    all_of_them = list(intervals)
    batches: Counter[int] = Counter()
    for each in all_of_them:
        batches.update(each.batches)
    return RequestTotals(
        **{name: sum(getattr(each, name) for each in all_of_them) for name in COUNTS},
        batches=dict(sorted(batches.items())),
        longest_queue=max((each.longest_queue for each in all_of_them), default=0),
        **_times(all_of_them),
    )


class CallTimes(NamedTuple):
    """Calls of the handler with as many requests, and sums as in `RequestInterval.took`."""

    size: int
    calls: int
    sum_s: float
    logs: float
    squares: float

    @property
    def mean_s(self) -> float:
        """Mean time (s) of a call."""
        return self.sum_s / self.calls

    @property
    def log_variance(self) -> float:
        """Variance of the natural logarithm of the time (s)."""
        return max(0.0, self.squares / self.calls - (self.logs / self.calls) ** 2)


def call_times(intervals: Iterable[RequestInterval]) -> list[CallTimes]:
    """Times of the calls with each number of requests that has answered, in ascending order of the numbers."""
    calls: Counter[int] = Counter()
    sums: dict[int, tuple[float, ...]] = {}
    for each in intervals:
        calls.update(each.batches)
        for size, more in each.took.items():
            sums[size] = tuple(map(add, sums.get(size, (0.0, 0.0, 0.0)), more))
    return [CallTimes(size, calls[size], *found) for size, found in sorted(sums.items()) if calls[size]]


def mean_batch(batches: Mapping[int, int]) -> float | None:
    """Mean number of requests in a call of the handler, of the number of calls by requests; None without calls."""
    calls = sum(batches.values())
    return sum(size * count for size, count in batches.items()) / calls if calls else None


def percentiles_s(intervals: Iterable[RequestInterval], percentiles: Sequence[float]) -> list[float]:
    """Percentiles (s) of all latencies together, in the order of `percentiles`; NaN if there are no latencies.

    Raises:
        ImportError: The library `hdrhistogram` is missing, and there are latencies.
    """
    merged = _merged(intervals)
    return [math.nan] * len(percentiles) if merged is None else _percentiles_s(merged, percentiles)


def cumulative_counts(intervals: Iterable[RequestInterval], bounds_s: Sequence[float]) -> list[int]:
    """Number of latencies at or below each bound (s), to three significant digits of a latency.

    Raises:
        ImportError: The library `hdrhistogram` is missing, and there are latencies.
    """
    merged = _merged(intervals)
    if merged is None:
        return [0] * len(bounds_s)
    counts = [(each.value_iterated_to, each.count_added_in_this_iter_step) for each in merged.get_recorded_iterator()]
    return [sum(count for latency_us, count in counts if latency_us <= bound_s * 1e6) for bound_s in bounds_s]


def _times(intervals: Iterable[RequestInterval]) -> dict[str, Any]:
    """Fields of `RequestTotals` that are times (s)."""
    names = ("p50_s", "p90_s", "p99_s", "p999_s")
    merged = _merged(intervals)
    if merged is None:
        return dict.fromkeys((*names, "mean_s", "max_s"), math.nan)
    found = dict(zip(names, _percentiles_s(merged, (50.0, 90.0, 99.0, 99.9)), strict=True))
    return found | {"mean_s": merged.get_mean_value() / 1e6, "max_s": merged.get_max_value() / 1e6}


def _percentiles_s(merged: Any, percentiles: Sequence[float]) -> list[float]:
    at, longest_us = merged.get_percentile_to_value_dict(list(percentiles)), merged.get_max_value()
    # A percentile is the upper end of its class of equal values, which the longest latency may be below.
    return [min(at[each], longest_us) / 1e6 for each in percentiles]


def against_target(intervals: Iterable[RequestInterval]) -> tuple[int, int]:
    """Number of requests with an outcome, and number of those that missed the target.

    This is what a missed target means everywhere: a request misses it if it is answered later than it is due, if it
    fails, or if it is refused. A request that its client cancels has no outcome.
    """
    requests = missed = 0
    for each in intervals:
        requests += each.answered + each.failed + each.refused
        missed += each.late + each.failed + each.refused
    return requests, missed


def _merged(intervals: Iterable[RequestInterval]) -> Any:
    """Histogram of all latencies together; None if there are none."""
    merged = None
    for each in intervals:
        if each.latencies and (one := _decoded(each.latencies)) is not None:
            if merged is None:
                merged = one
            else:
                merged.add(one)
    return merged if merged is not None and merged.total_count else None


def _decoded(text: str) -> Any:
    """Histogram of a text; None if the text is damaged, or its settings are not those that ecoshare writes."""
    from hdrh.codec import HdrHistogramEncoder
    from hdrh.histogram import HdrHistogram

    try:
        header = HdrHistogramEncoder.decode(text.encode()).payload
        settings = (header.lowest_trackable_value, header.highest_trackable_value, header.significant_figures)
        return HdrHistogram.decode(text.encode()) if settings == (1, LONGEST_US, DIGITS) else None
    except Exception:  # the library has errors of its own, of zlib, of base64 and of its extension module
        return None


def interval(line: bytes) -> RequestInterval | None:
    """Interval of a line that `RequestRecorder` has made; None if the line is damaged."""
    try:
        found = documents.parse(line) if len(line) <= _LONGEST_LINE else None
        if not isinstance(found, dict):
            return None
        batches = {int(size): _count(count) for size, count in found["batches"].items()}
        return RequestInterval(
            from_s=float(found["from_s"]),
            at_s=float(found["at_s"]),
            batches=batches,
            latencies=str(found["latencies"]),
            took={int(size): _sums(*sums) for size, sums in found.get("took", {}).items()},
            woke=_woke(*found.get("woke", (0, 0.0))),
            buckets={_bucket(place): _count(count) for place, count in found.get("buckets", {}).items()},
            latency_s=_time(found.get("latency_s", 0.0)),
            **{name: _count(found[name]) for name in (*COUNTS, "longest_queue")},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("it is no count")
    return value


def _sums(sum_s: object, logs: object, squares: object) -> tuple[float, float, float]:
    numbers = [each for each in (sum_s, logs, squares) if isinstance(each, int | float) and math.isfinite(each)]
    if len(numbers) < 3:
        raise ValueError("they are no numbers")
    return float(numbers[0]), float(numbers[1]), float(numbers[2])


def _woke(count: object, sum_s: object) -> tuple[int, float]:
    return _count(count), _time(sum_s)


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise ValueError("it is no time")
    return float(value)


def _bucket(text: str) -> int:
    place = int(text)
    if not 0 <= place <= len(LATENCY_BOUNDS_S):
        raise ValueError("there is no such bucket")
    return place


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
