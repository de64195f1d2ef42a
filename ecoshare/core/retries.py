"""What follows the end of an attempt: another one, or the end of its job."""

from __future__ import annotations

from ecoshare.core.events import Outcome
from ecoshare.core.records import Job

MOST_LOSSES = 3
"""How often an attempt may be lost through no fault of its job before the job is given up."""

_FAILURES = frozenset({Outcome.FAILED, Outcome.CRASHED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})


def again(job: Job, outcome: Outcome, largest_bytes: int, packs: bool) -> bool:
    """Whether an attempt that ended like this is followed by another; keeps the job's counts.

    Args:
        largest_bytes: Most memory that a job can have.
        packs: Whether memory is shared by all lanes, so that one that had too little gets twice as much at a time.
    """
    if outcome is Outcome.STOPPED:
        return job.again
    if outcome in (Outcome.LOST, Outcome.MOVED_OUT):
        job.losses += 1
        job.deaths += outcome is Outcome.LOST
        return job.losses <= MOST_LOSSES
    if outcome is Outcome.OUT_OF_MEMORY and not job.whole_lane and job.cap_bytes < largest_bytes:
        if packs:
            job.least_bytes = max(2 * job.demand.peak_bytes, job.usage.peak_bytes)
        job.whole_lane = not packs or job.least_bytes >= largest_bytes
        return True
    if outcome in _FAILURES:
        job.failures += 1
        return job.failures <= job.spec.retries
    return False
