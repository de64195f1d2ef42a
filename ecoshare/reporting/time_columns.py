"""Reduces quantities over time to as many columns as a chart can show.

Columns lie between `edges` (s), shape (n_columns + 1,). Values of columns have shape (n_columns,).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ecoshare.lane.serving.request_intervals import RequestInterval, mean_batch, percentiles_s

COLUMNS = 400
"""Most columns of a curve: details narrower than a pixel cannot be seen."""

Array = NDArray[np.float64]


def edges_of(times_s: Sequence[float]) -> Array:  # (n,) -> (<= COLUMNS + 1,)
    """The distinct times, if they are at most `COLUMNS` + 1; else equal columns over the whole time."""
    if len(times_s) - 1 <= COLUMNS:
        edges = np.unique(np.array(times_s, dtype=float))
        return edges if len(edges) > 1 else np.array([times_s[0], times_s[0] + 1e-3])
    return np.linspace(times_s[0], times_s[-1], COLUMNS + 1)


def spread(spans: list[tuple[float, float]], amounts: list[float], edges: Array) -> Array:  # -> (n_edges - 1,)
    """Amount in each column, if each amount is spread evenly over its span; spans must not overlap."""
    at_s = np.array(spans).ravel()
    total = np.repeat(np.concatenate(([0.0], np.cumsum(amounts))), 2)[1:-1]
    return np.diff(np.interp(edges, at_s, total))


def part_held(turns: Array, edges: Array) -> Array:  # (n_turns, 2), (n_edges,) -> (n_edges - 1,)
    """Part of each column that the turns take, 0 to 1, rounded to 0.01."""
    if not len(turns):
        return np.zeros(len(edges) - 1)
    spans = [(float(from_s), float(to_s)) for from_s, to_s in turns]
    parts = spread(spans, [to_s - from_s for from_s, to_s in spans], edges) / np.diff(edges)
    return np.round(parts, 2)  # finer steps cannot be seen, and equal neighbours make the file smaller


def means(values: list[tuple[float, float | None]], edges: Array) -> tuple[Array, Array]:
    """Times (s) and means of columns; NaN, a gap in the line, if no value is known. Few values are kept as they are."""
    if len(values) <= len(edges):
        return np.array([at_s for at_s, _ in values]), np.array([math.nan if v is None else v for _, v in values])
    known = [(at_s, value) for at_s, value in values if value is not None]
    at_s, value = np.array(known, dtype=float).T
    count, _ = np.histogram(at_s, edges)
    total, _ = np.histogram(at_s, edges, weights=value)
    return (edges[1:] + edges[:-1]) / 2, np.where(count, total / np.maximum(count, 1), np.nan)


def steps(edges: Array, *values: Array) -> list[Array]:
    """x, then one y for each of `values`: corners of staircases, without edges at which no value changes."""
    stacked = np.array(values)
    changes = np.flatnonzero(np.concatenate(([True], (stacked[:, 1:] != stacked[:, :-1]).any(axis=0))))
    x = np.repeat(np.append(edges[:-1][changes], edges[-1]), 2)[1:-1]
    return [x, *np.repeat(stacked[:, changes], 2, axis=1)]


def stretches(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last edge of each stretch of columns in which the mask is true."""
    padded = np.concatenate(([False], mask, [False])).astype(int)
    return list(zip(np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1), strict=True))


@dataclass(frozen=True, slots=True)
class RequestColumn:
    """Requests of one interval of a service, or of several that follow each other.

    Attributes:
        from_s: Time (s) of the first event.
        to_s: Time (s) of the end.
        answered: Number of requests that were answered.
        late: Number of late answers.
        unanswered: Number of requests that failed or were refused.
        longest_queue: Most requests that waited at once.
        mean_batch: Mean number of requests in a call of the handler; None without calls.
        p50_s: 50th percentile of latencies (s); NaN without answers.
        p99_s: 99th percentile (s).
    """

    from_s: float
    to_s: float
    answered: int
    late: int
    unanswered: int
    longest_queue: int
    mean_batch: float | None
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, found: Sequence[RequestInterval]) -> RequestColumn:
        """Column of at least one interval."""
        batches: Counter[int] = Counter()
        for each in found:
            batches.update(each.batches)
        return cls(
            found[0].from_s,
            found[-1].at_s,
            sum(each.answered for each in found),
            sum(each.late for each in found),
            sum(each.failed + each.refused for each in found),
            max(each.longest_queue for each in found),
            mean_batch(batches),
            *percentiles_s(found, (50.0, 99.0)),
        )

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of requests that were answered in time, were answered late, and failed or were refused."""
        return self.answered - self.late, self.late, self.unanswered


def request_columns(intervals: Sequence[RequestInterval], most: int) -> list[RequestColumn]:
    """Columns of the intervals of a service, at most `most`.

    A column is an interval. If there are more, or if they overlap since the service has several processes, a column has
    those that begin in an equal part of the time, of a second or more.

    Args:
        intervals: Intervals in the order in which they begin.
        most: Most columns, above 1.
    """
    if len(intervals) <= most and all(one.at_s <= other.from_s for one, other in pairwise(intervals)):
        return [RequestColumn.of([each]) for each in intervals]
    groups: dict[int, list[RequestInterval]] = {}
    begin_s = intervals[0].from_s
    part_s = max((intervals[-1].from_s - begin_s) / (most - 1), 1.0)
    for each in intervals:
        groups.setdefault(int((each.from_s - begin_s) / part_s), []).append(each)
    return [RequestColumn.of(group) for group in groups.values()]
