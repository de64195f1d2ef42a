"""Checks whether a profile is reliable enough to compare a run with its jobs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecoshare.profiling.profile import Profile
from ecoshare.values.attempt import Usage

if TYPE_CHECKING:
    from ecoshare.record.job_summary import JobSummary

MOST_ERROR = 0.1
"""Largest relative standard error of a job's time alone from which savings are claimed."""

_DEVIATIONS, _NOISE = 2.0, 0.1
"""Tolerance for a job that is faster than its profile: standard errors, plus a part of the profiled time. The second
covers other seeds, and clocks that rise when the machine cools."""

FEWEST_ITERATIONS = 20
"""Fewest iterations of a job that can show its profile to be stale."""


def too_fast(usage: Usage, alone_s: float | None, profile: Profile | None) -> str:
    """Reason why a profile is stale; empty if the job was not faster than the profile allows.

    Args:
        usage: Resources that the job used. Waits for the turn do not count as working time.
        alone_s: Time (s) of the same iterations alone, from the profile; None if it is not known.
        profile: Profile of the job's class; None if there is none.
    """
    working_s = usage.span_s - usage.waited_s
    if profile is None or not alone_s or working_s <= 0.0 or usage.done < FEWEST_ITERATIONS:
        return ""
    error = (profile.alone_error_s(usage.iterations, usage.eval_iterations) or 0.0) / alone_s
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
    error_s = profile.alone_error_s(job.iterations, job.eval_iterations)
    if error_s is None:
        return f"the error of the profile of {name} is not known"
    alone_s = profile.alone_s(job.iterations, job.eval_iterations)
    if alone_s and (error := error_s / alone_s) > MOST_ERROR:
        return f"the profile of {name} is uncertain (±{100 * error:.0f} %)"
    return ""
