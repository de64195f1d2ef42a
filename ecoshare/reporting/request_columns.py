"""Reduces the requests of a service over time to as many columns as a picture or a trace can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecoshare.serving.request_intervals import RequestInterval, mean_batch, percentiles_s


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
