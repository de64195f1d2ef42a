"""Services of a recorded run: the times of their batches, and where their requests came from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ecoshare.lane.files import of_attempt
from ecoshare.serving.request_intervals import RequestInterval, read
from ecoshare.serving.request_source import read_arrivals
from ecoshare.simulation.traces.job_trace import AnswerTime
from ecoshare.values.service import ARRIVALS, REQUESTS, RequestSource, ServiceSpec

_WARM = 1
"""Intervals at the beginning whose batches are left out, if others are there: first calls load code."""


def intervals(folder: Path, attempt: int) -> list[RequestInterval]:
    """Record of an attempt, from the folder of its job; empty if there is none."""
    return read(of_attempt(folder, REQUESTS, attempt))


def answer_time(found: Sequence[RequestInterval]) -> AnswerTime | None:
    """Line through the mean times of the batch sizes, weighted by their numbers; None if no batch has a time.

    With batches of one size alone, the time grows in proportion, as a live service assumes.
    """
    counts, sums, squares = _times(found[_WARM:])
    if not counts:
        counts, sums, squares = _times(found)
    sizes = [size for size in counts if sums[size] > 0.0]
    if not sizes:
        return None
    mean_s = {size: sums[size] / counts[size] for size in sizes}
    fixed_s, each_s = _line(mean_s, counts)
    above = [max(0.0, squares[size] / counts[size] / mean_s[size] ** 2 - 1.0) for size in sizes]
    return AnswerTime(fixed_s, each_s, math.sqrt(np.average(above, weights=[counts[size] for size in sizes])))


def _times(found: Iterable[RequestInterval]) -> tuple[Counter[int], dict[int, float], dict[int, float]]:
    """Number of batches, sum of their times (s) and of the squares of these, by size."""
    counts: Counter[int] = Counter()
    sums: dict[int, float] = {}
    squares: dict[int, float] = {}
    for each in found:
        for size, (sum_s, of) in each.took.items():
            counts[size] += each.batches.get(size, 0)
            sums[size] = sums.get(size, 0.0) + sum_s
            squares[size] = squares.get(size, 0.0) + of
    return Counter({size: count for size, count in counts.items() if count}), sums, squares


def _line(mean_s: dict[int, float], counts: Counter[int]) -> tuple[float, float]:
    """Fixed time (s) and time (s) for each request; neither is below 0."""
    sizes, weights = np.array([*mean_s], float), np.array([counts[size] for size in mean_s], float)
    times_s = np.array([*mean_s.values()])
    if len(sizes) == 1:
        return 0.0, float(times_s[0] / sizes[0])
    each_s, fixed_s = np.polyfit(sizes, times_s, 1, w=np.sqrt(weights))
    if each_s < 0.0:
        return float(np.average(times_s, weights=weights)), 0.0
    if fixed_s < 0.0:
        return 0.0, float(np.sum(weights * sizes * times_s) / np.sum(weights * sizes**2))
    return float(fixed_s), float(each_s)


def with_requests(service: ServiceSpec, folder: Path, found: Sequence[RequestInterval]) -> ServiceSpec:
    """Service with the batch sizes that it used, and with a source that can be simulated.

    Requests from outside become a Poisson process with their mean rate: no record has the time of each.

    Args:
        service: Service as the run knew it.
        folder: Folder of its job.
        found: Record of its requests.

    Raises:
        OSError: The file of arrivals cannot be read.
        ValueError: It is damaged.
    """
    sizes = service.batch_sizes or tuple(sorted({size for each in found for size in each.batches}))
    requests = service.requests
    if requests is None:
        span_s = found[-1].at_s - found[0].from_s if found else 0.0
        rate = sum(each.arrived for each in found) / span_s if span_s > 0.0 else 0.0
        requests = RequestSource(rate_per_s=rate) if rate else None
    elif requests.arrivals:
        read_arrivals(folder / ARRIVALS)
        requests = replace(requests, arrivals=str(folder / ARRIVALS))
    return replace(service, batch_sizes=sizes, requests=requests)
