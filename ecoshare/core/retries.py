"""Retries: whether another attempt follows the end of an attempt, or the job ends."""

from __future__ import annotations

from ecoshare.core.memory import LEAST_ALLOWANCE_BYTES
from ecoshare.core.records import Job
from ecoshare.core.states import JobState
from ecoshare.values.attempt import Outcome

MOST_LOSSES = 3
"""Attempts that may be lost through no fault of the job. The next loss ends the job."""

MOST_FALSE_STARTS = 5
"""Failures of a service in a row, each soon after its start and before its first answer. The next one ends it."""

FALSE_START_S = 10.0
"""Longest time (s) from the start of a service to a failure that counts as a false start."""

_FAILURES = frozenset({Outcome.FAILED, Outcome.CRASHED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT})


_LOSSES = frozenset({Outcome.LOST, Outcome.MOVED_OUT, Outcome.NOT_RESUMED, Outcome.DEVICE_FAILED})

NO_FAULT_OF_ITS_OWN = frozenset({Outcome.STOPPED, *_LOSSES})
"""Outcomes with which an attempt ends because of other jobs, of ecoshare or of the machine."""


def again(job: Job, outcome: Outcome, largest_bytes: int) -> bool:
    """Whether another attempt follows an attempt with this outcome. The counts of the job are updated.

    A job that ran out of memory is granted twice as much the next time, up to all memory of a device. Twice a demand of
    0 bytes would be no more, so the grant is at least the allowance that such a job had.

    Args:
        job: Job of the attempt.
        outcome: Outcome of the attempt.
        largest_bytes: Most memory that a job can have.
    """
    if outcome is Outcome.STOPPED:
        return job.again
    if outcome in _LOSSES:
        job.losses += 1
        job.deaths += outcome is Outcome.LOST
        return job.losses <= MOST_LOSSES
    if outcome is Outcome.OUT_OF_MEMORY and not job.whole_device and job.cap_bytes < largest_bytes:
        job.least_bytes = max(2 * job.demand.peak_bytes, job.usage.peak_bytes, LEAST_ALLOWANCE_BYTES)
        job.whole_device = job.least_bytes >= largest_bytes
        return True
    if outcome in _FAILURES:
        job.failures += 1
        job.false_starts = job.false_starts + 1 if _is_false_start(job) else 0
        return job.failures <= job.spec.retries and job.false_starts <= MOST_FALSE_STARTS
    return False


def _is_false_start(job: Job) -> bool:
    """Whether a service has failed soon after its start, without an answer: it would do so again and again."""
    if job.spec.service is None or job.usage.done:
        return False
    began_s = next((step.at_s for step in reversed(job.history) if step.after is JobState.STARTING), job.told_s)
    return job.told_s - began_s <= FALSE_START_S
