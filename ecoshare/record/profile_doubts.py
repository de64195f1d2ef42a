"""Whether what a profile says of its class alone can be compared with what a run has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecoshare.profiling.profile import Profile

MOST_ERROR = 0.1
"""Relative standard error of a mean iteration time up to which savings are claimed from it."""

_DEVIATIONS, _NOISE = 2.0, 0.1
"""A job may be faster than its profile says by so many standard errors, and by this part of the time besides: other
seeds, and clocks that rise when the machine cools."""

FEWEST_ITERATIONS = 20
"""Iterations below which a job says nothing of its profile."""


def too_fast(working_s: float, alone_s: float | None, iterations: int, profile: Profile | None) -> str:
    """Why a profile is stale; empty where the job was not faster than the profile allows.

    Args:
        working_s: Time of the iterations of a job beside others, waits for the turn left out.
        alone_s: Time of the same iterations alone, by the profile; None where it does not say.
        iterations: Number of them.
    """
    if profile is None or not alone_s or working_s <= 0.0 or iterations < FEWEST_ITERATIONS:
        return ""
    error = profile.relative_error or 0.0
    if working_s >= alone_s * (1.0 - _DEVIATIONS * error - _NOISE):
        return ""
    return f"ran {alone_s / working_s:.1f} times as fast beside others as its profile says it runs alone"


def uncertain(job: Mapping[str, Any], profile: Profile | None) -> str:
    """Why no saving is claimed from the profile of a job, in words; empty where one may be.

    Args:
        job: Of the summary.
    """
    name = job["name"]
    if job["profile_doubt"]:
        return f"{name} {job['profile_doubt']}"
    if profile is None:
        return f"{name} has no profile"
    if profile.doubt:
        return f"the profile of {name} is not relied on ({profile.doubt})"
    if kind := profile.not_measured(job["iterations"], job["eval_iterations"]):
        return f"no {kind} iteration of {name} is in its profile"
    error = profile.relative_error
    if error is None:
        return f"the error of the profile of {name} is not known"
    if error > MOST_ERROR:
        return f"the profile of {name} is uncertain (±{100 * error:.0f} %)"
    return ""
