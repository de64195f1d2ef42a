"""States of open-ended services at the end of a run: a service that served to the end has completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ecoshare.core.job_ends import ended_by_user
from ecoshare.record.job_history import JobHistory
from ecoshare.record.job_summary import JobSummary
from ecoshare.values.service import service_of

_OVER = ("completed", "failed", "pruned")


def is_open_ended(job: Mapping[str, Any]) -> bool:
    """Whether a job of a plan is a service without a last request."""
    return job.get("service") is not None and service_of(job["service"]).is_open_ended


def served_to_the_end(
    jobs: Sequence[JobSummary], services: set[str], others: Sequence[str], own: Mapping[str, JobHistory], stopped: bool
) -> tuple[list[JobSummary], bool]:
    """Jobs of a summary, in which each open-ended service that was stopped at its end has completed.

    A service ends when all other jobs have ended. In a run of such services alone, it ends when the user stops the run;
    it has completed then if it needed no SIGKILL.

    Args:
        jobs: Jobs of the summary. A service that was stopped is cancelled there.
        services: Names of the open-ended services.
        others: States of the other jobs and of the sweeps.
        own: History of each job.
        stopped: Whether the user stopped the last session.

    Returns:
        The jobs, and whether the user has ended one of these services. Such a run is interrupted all the same.
    """
    is_over = bool(others) and all(state in _OVER for state in others)
    found, by_user = [], False
    for job in jobs:
        ended = own[job.name].exit
        ends_here = not others and stopped and ended is not None and ended_by_user(ended.outcome, ended.exit_code)
        if job.name in services and job.state == "cancelled" and (is_over or ends_here):
            by_user |= ends_here
            job = replace(job, state="completed", error=None)
        found.append(job)
    return found, by_user
