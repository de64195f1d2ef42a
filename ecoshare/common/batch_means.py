"""Error of a mean time, by the method of batch means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

_BATCHES = 8
"""Number of batches for the standard error. Neighbouring iterations are correlated (a noisy machine, a long batch), so
the error is that of batch means. Few batches make each one longer than the correlation; this many show the spread (Law,
"Simulation Modeling and Analysis", section 9.5.3)."""


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
