"""Statistics of iteration times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, quantiles, stdev

from ecoshare.profiling.profile import IterationTimes

_BATCHES = 8
"""Neighbouring iterations are alike (a noisy machine, a long batch), so the error is that of the means of batches:
few enough for each to be longer than what makes neighbours alike, enough to tell their spread (Law, "Simulation
Modeling and Analysis", section 9.5.3)."""


def times(durations_s: Sequence[float]) -> IterationTimes | None:
    """Their statistics; None where there are none."""
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
    """Standard error of their mean over the mean, by the means of batches; None where there are too few to tell."""
    size = len(durations_s) // _BATCHES
    if not size:
        return None
    # The oldest are left out where the batches do not take all.
    latest = durations_s[len(durations_s) - size * _BATCHES :]
    means = [fmean(latest[place : place + size]) for place in range(0, len(latest), size)]
    overall = fmean(means)
    return stdev(means) / math.sqrt(_BATCHES) / overall if overall > 0.0 else None
