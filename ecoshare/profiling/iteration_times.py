"""Statistics of iteration times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, quantiles, stdev

from ecoshare.profiling.profile import IterationTimes

_BATCHES = 8
"""Number of batches for the standard error. Neighbouring iterations are correlated (a noisy machine, a long batch), so
the error is that of batch means. Few batches make each one longer than the correlation; this many show the spread (Law,
"Simulation Modeling and Analysis", section 9.5.3)."""


def times(durations_s: Sequence[float]) -> IterationTimes | None:
    """Statistics of durations (s); None if there are none."""
    if not durations_s:
        return None
    mean_s = fmean(durations_s)
    error = relative_error(durations_s)
    cuts = quantiles(durations_s, n=20, method="inclusive") if len(durations_s) > 1 else [mean_s] * 19
    return IterationTimes(
        count=len(durations_s),
        mean_s=mean_s,
        standard_error_s=error * mean_s if error is not None else None,
        median_s=cuts[9],
        p95_s=cuts[18],
    )


def relative_error(durations_s: Sequence[float]) -> float | None:
    """Standard error of the mean / mean, by batch means; None for too few durations, or if the mean is 0."""
    size = len(durations_s) // _BATCHES
    if not size:
        return None
    # The oldest durations that fill no batch are left out.
    latest = durations_s[len(durations_s) - size * _BATCHES :]
    means = [fmean(latest[place : place + size]) for place in range(0, len(latest), size)]
    overall = fmean(means)
    return stdev(means) / math.sqrt(_BATCHES) / overall if overall > 0.0 else None
