"""Services of a recorded run: the times of their batches, and where their requests came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ecoshare.lane.files import of_attempt
from ecoshare.serving.request_intervals import CallTimes, RequestInterval, call_times
from ecoshare.serving.request_intervals import read as read_intervals
from ecoshare.serving.request_source import read_arrivals
from ecoshare.simulation.traces.job_trace import AnswerTime
from ecoshare.values.service import ARRIVALS, REQUESTS, RequestSource, ServiceSpec

_WARM = 1
"""Intervals at the beginning that are left out, if others are there: first calls load code."""


def intervals(folder: Path, attempt: int) -> list[RequestInterval]:
    """Record of an attempt, from the folder of its job; empty if there is none."""
    return read_intervals(of_attempt(folder, REQUESTS, attempt))


def answer_time(found: Sequence[RequestInterval]) -> tuple[AnswerTime, float] | None:
    """Line through the mean times of the batch sizes, weighted by their numbers, and their spread; None without times.

    With batches of one size alone, the time grows in proportion, as a live service assumes.
    """
    sizes = call_times(found[_WARM:]) or call_times(found)
    if not sizes:
        return None
    answer = AnswerTime(*_line(sizes), _wake_up_s(found[_WARM:]))
    variance = np.average([each.log_variance for each in sizes], weights=[each.calls for each in sizes])
    return answer, spread_of(float(variance))


def _wake_up_s(found: Iterable[RequestInterval]) -> float:
    """Mean time (s) until the idle service asked for its turn; 0 if it is not known."""
    counts, sums_s = [each.woke[0] for each in found], [each.woke[1] for each in found]
    return sum(sums_s) / sum(counts) if sum(counts) else 0.0


def spread_of(log_variance: float) -> float:
    """Standard deviation / mean of a log-normal time, from the variance of its logarithm."""
    return math.sqrt(math.expm1(log_variance))


def _line(times: Sequence[CallTimes]) -> tuple[float, float]:
    """Fixed time (s) and time (s) for each request; neither is below 0."""
    sizes, counts, means_s = np.array([(each.size, each.calls, each.mean_s) for each in times], float).T
    if len(times) == 1:
        return 0.0, float(means_s[0] / sizes[0])
    each_s, fixed_s = np.polyfit(sizes, means_s, 1, w=np.sqrt(counts))
    if each_s < 0.0:
        return float(np.average(means_s, weights=counts)), 0.0
    if fixed_s < 0.0:
        return 0.0, float(np.sum(counts * sizes * means_s) / np.sum(counts * sizes**2))
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
