"""How many requests are answered at once. Pure code: it knows no clock, no queue and no handler.

A larger batch answers more requests a second, and each of them later. So a batch is as large as the request that is due
first allows. It never waits to be filled: the requests that come meanwhile wait for the next one.

::

    waiting 5, sizes 1 2 4 8        size 1 ─┤          answered at
                                    size 2 ──┤
                                    size 4 ────┤       ◄── chosen: 8 are not there
                                    due first ───↓
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MEAN_OVER = 16
"""Batches of a size after which the running mean forgets at a constant rate."""

_HALF_LIFE = 128
"""Batches after which the excess of the longest batch over the mean is halved. A target for the 99th percentile needs
an estimate that remembers about 100 batches."""


def batch_size(allowed: Sequence[int], waiting: int, left_s: float, upper_s: Callable[[int], float]) -> int:
    """Number of requests in the next batch.

    It is the largest allowed size that is filled by the waiting requests and answers the request that is due first in
    time. If no size does, the request is late anyway, and the largest size that is filled gives the most answers a
    second. If fewer requests wait than the smallest size has, the batch has those that wait: it is smaller than any
    allowed size.

    Args:
        allowed: Batch sizes that may be used, in ascending order.
        waiting: Number of requests that wait, at least 1.
        left_s: Time (s) until the first of them is due; infinity if none has a time.
        upper_s: Upper estimate of the time (s) that a batch of a size takes.
    """
    filled = [size for size in allowed if size <= waiting] or [waiting]
    return next((size for size in reversed(filled) if upper_s(size) <= left_s), filled[-1])


def limited(allowed: Sequence[int], most: int) -> Sequence[int]:
    """Batch sizes up to `most`, 0 for all of them; the smallest one if that is larger still."""
    return [size for size in allowed if size <= most] or allowed[:1] if most else allowed


@dataclass(slots=True)
class _SizeTimes:
    """Times of the batches of one size.

    Attributes:
        mean_s: Running mean (s).
        excess_s: Excess (s) of the longest batch over the mean, as it was at `at_batch`.
        count: Number of batches of this size.
        at_batch: Number of all batches at the last one of this size.
    """

    mean_s: float
    excess_s: float
    count: int
    at_batch: int


class AnswerTimes:
    """Upper estimates of the time that a batch takes, by its size, learned from each batch.

    The estimate of a known size is the running mean of its times plus the excess of the longest time over that mean.
    The excess is halved with every 128 batches of any size, so one slow batch is forgotten even if its size is then
    avoided. The first batch of a size often loads code: a shorter second one replaces it.

    The estimate of another size is a straight line between the two known neighbours. Above the largest known size, the
    line through the two largest goes on, but never falls. With one known size, the time grows in proportion. Below the
    smallest known size, the estimate is that of the smallest. Before the first batch, every estimate is 0.
    """

    def __init__(self) -> None:
        self._known: dict[int, _SizeTimes] = {}
        self._sizes: list[int] = []
        self._batches = 0

    def learn(self, size: int, took_s: float) -> None:
        """Learn that a batch of `size` requests took `took_s` (s)."""
        self._batches += 1
        known = self._known.get(size)
        if known is None:
            self._sizes.insert(bisect_left(self._sizes, size), size)
            self._known[size] = _SizeTimes(took_s, 0.0, 1, self._batches)
            return
        longest_s = max(took_s, self._of_known_s(size))
        known.count += 1
        if known.count == 2 and took_s < known.mean_s:
            known.mean_s = longest_s = took_s
        known.mean_s += (took_s - known.mean_s) / min(known.count, _MEAN_OVER)
        known.excess_s = max(0.0, longest_s - known.mean_s)
        known.at_batch = self._batches

    def upper_s(self, size: int) -> float:
        """Upper estimate of the time (s) that a batch of `size` requests takes."""
        if size in self._known:
            return self._of_known_s(size)
        if not self._sizes:
            return 0.0
        place = bisect_left(self._sizes, size)
        if place == 0:
            return self._of_known_s(self._sizes[0])
        if place < len(self._sizes):
            return self._on_line_s(self._sizes[place - 1], self._sizes[place], size)
        last = self._sizes[-1]
        if len(self._sizes) == 1:
            return self._of_known_s(last) * size / last
        return max(self._of_known_s(last), self._on_line_s(self._sizes[-2], last, size))

    def _of_known_s(self, size: int) -> float:
        known = self._known[size]
        return known.mean_s + known.excess_s * math.exp2((known.at_batch - self._batches) / _HALF_LIFE)

    def _on_line_s(self, lower: int, upper: int, size: int) -> float:
        from_s, to_s = self._of_known_s(lower), self._of_known_s(upper)
        return from_s + (to_s - from_s) * (size - lower) / (upper - lower)
