"""Statistics of iteration times."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, quantiles

from ecoshare.common.batch_means import error_of_any
from ecoshare.profiling.profile import IterationTimes


def times(durations_s: Sequence[float]) -> IterationTimes | None:
    """Statistics of durations (s); None if there are none."""
    if not durations_s:
        return None
    mean_s = fmean(durations_s)
    error = error_of_any(durations_s)
    cuts = quantiles(durations_s, n=20, method="inclusive") if len(durations_s) > 1 else [mean_s] * 19
    return IterationTimes(
        count=len(durations_s),
        mean_s=mean_s,
        standard_error_s=error * mean_s if error is not None else None,
        median_s=cuts[9],
        p95_s=cuts[18],
    )
