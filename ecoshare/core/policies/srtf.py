"""Shortest remaining time first, preempting at iteration boundaries."""

from __future__ import annotations

import math
from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Srtf(Usual):
    """The job that needs the least turn time to finish goes first: the best mean JCT where lengths are known.

    Source: SRTF of Salus (Yu and Chowdhury, MLSys 2020, section 4). A job whose `iterations` nobody gave, or that
    has not shown its speed yet, counts as needing as long as it has had: for heavy-tailed lengths what a job has
    had is what to expect of it (least attained service; Gu et al., "Tiresias", NSDI 2019). A new job therefore
    runs soon, and shows its speed.
    """

    name: ClassVar[str] = "srtf"

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time, seconds; among those that have not shown it, fewest iterations first."""
        return (expected_s(job, at_s), math.inf if job.spec.iterations is None else job.spec.iterations)

    def drift(self, job: Job) -> float:
        """What remains shrinks; where it is not known, what was had grows."""
        return drift(job)


def drift(job: Job) -> float:
    """By how much what a job is expected to need changes in a second while it runs."""
    return 1.0 if job.remaining_s(job.told_s) is None else -1.0


def expected_s(job: Job, at_s: float) -> float:
    """Turn time that a job is expected to need still, seconds."""
    remaining_s = job.remaining_s(at_s)
    return job.attained_s(at_s) if remaining_s is None else remaining_s
