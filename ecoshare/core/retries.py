"""Retries: whether another attempt follows the end of an attempt, or the job ends."""

from __future__ import annotations

from ecoshare.core.records import Job
from ecoshare.core.states import JobState
from ecoshare.values.attempt import Outcome

MOST_LOSSES = 3
"""Attempts that may be lost through no fault of the job. The next loss ends the job."""

MOST_FALSE_STARTS = 5
"""Failures of a service in a row, each soon after its start and before its first answer. The next one ends it."""

FALSE_START_S = 10.0
"""Longest time (s) from the start of a service to a failure that counts as a false start."""

SHORT_OF_MEMORY = frozenset({Outcome.OUT_OF_MEMORY, Outcome.OUTGREW})
"""Outcomes of an attempt for lack of memory."""

_FAILURES = frozenset({Outcome.FAILED, Outcome.CRASHED, *SHORT_OF_MEMORY, Outcome.TIMED_OUT})

_LOSSES = frozenset({Outcome.LOST, Outcome.MOVED_OUT, Outcome.NOT_RESUMED, Outcome.DEVICE_FAILED})

NO_FAULT_OF_ITS_OWN = frozenset({Outcome.STOPPED, *_LOSSES})
"""Outcomes with which an attempt ends because of other jobs, of ecoshare or of the machine."""


def again(job: Job, outcome: Outcome, could_have_more: bool) -> bool:
    """Whether another attempt follows an attempt with this outcome. The counts of the job are updated.

    A job that could have had more memory begins again once, with all memory of a device. The limit of its allocator, or
    the jobs beside it, caused its first end.

    Args:
        job: Job of the attempt.
        outcome: Outcome of the attempt.
        could_have_more: Whether the job had less memory than all that a job can have.
    """
    if outcome is Outcome.STOPPED:
        return job.again
    if outcome in _LOSSES:
        job.losses += 1
        job.deaths += outcome is Outcome.LOST
        return job.losses <= MOST_LOSSES
    if outcome in SHORT_OF_MEMORY and (job.again or (could_have_more and not job.whole_device)):
        job.whole_device = True
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
