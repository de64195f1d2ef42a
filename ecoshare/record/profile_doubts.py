"""Checks whether a profile is stale: whether a job was faster than it says the job is alone."""

from __future__ import annotations

from ecoshare.profiling.profile import Profile
from ecoshare.values.attempt import Usage

_DEVIATIONS, _NOISE = 2.0, 0.1
"""Tolerance for a job that is faster than its profile: standard errors, plus a part of the profiled time. The second
covers other seeds, and clocks that rise when the machine cools."""

FEWEST_ITERATIONS = 20
"""Fewest iterations of a job that can show its profile to be stale."""


def too_fast(usage: Usage, profile: Profile | None) -> str:
    """Reason why a profile is stale; empty if the job was not faster than the profile allows.

    Args:
        usage: Resources that the job used. Waits for the turn do not count as working time.
        profile: Profile of the job's class; None if there is none.
    """
    working_s = usage.span_s - usage.waited_s
    if profile is None or working_s <= 0.0 or usage.done < FEWEST_ITERATIONS:
        return ""
    alone_s = profile.alone_s(usage.iterations, usage.eval_iterations)
    if alone_s is None:
        return ""
    alone_s *= (usage.done - 1) / usage.done  # the first iteration ends where the working time begins
    error = (profile.alone_error_s(usage.iterations, usage.eval_iterations) or 0.0) / alone_s
    if working_s >= alone_s * (1.0 - _DEVIATIONS * error - _NOISE):
        return ""
    return f"ran {alone_s / working_s:.1f} times as fast as its profile says it runs alone"
