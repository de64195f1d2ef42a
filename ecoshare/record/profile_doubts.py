"""Checks whether a profile is reliable enough to compare a run with its jobs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecoshare.profiling.profile import Profile

if TYPE_CHECKING:
    from ecoshare.record.job_summary import JobSummary

MOST_ERROR = 0.1
"""Largest relative standard error of a mean iteration time from which savings are claimed."""

_DEVIATIONS, _NOISE = 2.0, 0.1
"""Tolerance for a job that is faster than its profile: standard errors, plus a part of the profiled time. The second
covers other seeds, and clocks that rise when the machine cools."""

FEWEST_ITERATIONS = 20
"""Fewest iterations of a job that can show its profile to be stale."""


def too_fast(working_s: float, alone_s: float | None, iterations: int, profile: Profile | None) -> str:
    """Reason why a profile is stale; empty if the job was not faster than the profile allows.

    Args:
        working_s: Time (s) of a job's iterations in the run, without waits for the turn.
        alone_s: Time (s) of the same iterations alone, from the profile; None if it is not known.
        iterations: Number of these iterations.
        profile: Profile of the job's class; None if there is none.
    """
    if profile is None or not alone_s or working_s <= 0.0 or iterations < FEWEST_ITERATIONS:
        return ""
    error = profile.relative_error or 0.0
    if working_s >= alone_s * (1.0 - _DEVIATIONS * error - _NOISE):
        return ""
    return f"ran {alone_s / working_s:.1f} times as fast as its profile says it runs alone"


def uncertain(job: JobSummary, profile: Profile | None) -> str:
    """Reason why no saving is claimed from the profile of a job; empty if savings may be claimed.

    Args:
        job: Job of the summary.
        profile: Profile of the job's class; None if there is none.
    """
    name = job.name
    if job.service is not None:
        return f"{name} is a service, and savings are those of iterations"
    if job.widened:
        return f"{name} had more devices than in its profile"
    if job.profile_doubt:
        return f"{name} {job.profile_doubt}"
    if profile is None:
        return f"{name} has no profile"
    if profile.doubt:
        return f"the profile of {name} is not relied on ({profile.doubt})"
    if kind := profile.not_measured(job.iterations, job.eval_iterations):
        return f"no {kind} iteration of {name} is in its profile"
    error = profile.relative_error
    if error is None:
        return f"the error of the profile of {name} is not known"
    if error > MOST_ERROR:
        return f"the profile of {name} is uncertain (±{100 * error:.0f} %)"
    return ""
