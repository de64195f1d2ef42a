"""Sums up what a service did in a run: requests, latencies and joules a request, from the records of its attempts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.base.service import REQUESTS
from ecoshare.lane.files import of_attempt
from ecoshare.lane.serving.request_intervals import RequestInterval, mean_batch, read, total


@dataclass(frozen=True, slots=True)
class ServiceSummary:
    """Requests of a service in all of its attempts. A value that is not known is None.

    Latencies run from the arrival of a request to its answer.

    Attributes:
        target_s: Target (s) of the 99th percentile of latencies.
        met: Whether the 99th percentile is within the target; None without answers.
        missed_minutes: Number of minutes in which the target was missed, one after the other.
        arrived: Number of requests that came.
        answered: Number of requests that were answered.
        late: Number of answers after the target, or after a deadline of their own.
        failed: Number of requests that failed.
        refused: Number of requests that came when the queue was full.
        cancelled: Number of requests that their clients gave up.
        goodput_per_s: Answers in time / time (s) from the first request to the last event.
        mean_s: Mean latency (s).
        p50_s: 50th percentile of latencies (s).
        p90_s: 90th percentile (s).
        p99_s: 99th percentile (s).
        p999_s: 99.9th percentile (s).
        batches: Number of calls of the handler by the number of requests.
        energy_per_request_j: Joules of the job / answers.
    """

    target_s: float
    met: bool | None = None
    missed_minutes: int = 0
    arrived: int = 0
    answered: int = 0
    late: int = 0
    failed: int = 0
    refused: int = 0
    cancelled: int = 0
    goodput_per_s: float | None = None
    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    p999_s: float | None = None
    batches: dict[int, int] = field(default_factory=dict)
    energy_per_request_j: float | None = None

    @property
    def mean_batch(self) -> float | None:
        """Mean number of requests in a call of the handler; None without calls."""
        return mean_batch(self.batches)


def intervals(folder: Path, attempts: int) -> list[RequestInterval]:
    """Intervals of all attempts of a job, in the order in which they began.

    Args:
        folder: Folder of the job.
        attempts: Number of attempts.
    """
    found = [each for attempt in range(1, attempts + 1) for each in read(of_attempt(folder, REQUESTS, attempt))]
    return sorted(found, key=lambda each: each.from_s)  # a server may have several processes


def service_summary(
    target_s: float, found: Iterable[RequestInterval], energy_j: float | None, missed_minutes: int = 0
) -> ServiceSummary:
    """Summary of the intervals of a service.

    Args:
        target_s: Target (s) of the 99th percentile of latencies.
        found: The intervals.
        energy_j: Energy (J) of the job; None if it is not known.
        missed_minutes: Number of minutes in which the target was missed.
    """
    found = list(found)
    sums = total(found)
    if not found:
        return ServiceSummary(target_s, missed_minutes=missed_minutes)
    span_s = found[-1].at_s - found[0].from_s
    return ServiceSummary(
        target_s,
        met=None if math.isnan(sums.p99_s) else sums.p99_s <= target_s,
        missed_minutes=missed_minutes,
        arrived=sums.arrived,
        answered=sums.answered,
        late=sums.late,
        failed=sums.failed,
        refused=sums.refused,
        cancelled=sums.cancelled,
        goodput_per_s=(sums.answered - sums.late) / span_s if span_s > 0.0 else None,
        mean_s=_known(sums.mean_s),
        p50_s=_known(sums.p50_s),
        p90_s=_known(sums.p90_s),
        p99_s=_known(sums.p99_s),
        p999_s=_known(sums.p999_s),
        batches=sums.batches,
        energy_per_request_j=energy_j / sums.answered if sums.answered and energy_j is not None else None,
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
