"""Shortest remaining time first, preempting at iteration boundaries."""

from __future__ import annotations

import math
from typing import ClassVar

from ecoshare.core.records import Job, Key, Lane


class Srtf:
    """The job that needs the least turn time to finish goes first: the best mean JCT where lengths are known.

    Source: SRTF of Salus (Yu and Chowdhury, MLSys 2020, section 4). A job whose `iterations` nobody gave, or that
    has not shown its speed yet, counts as needing as long as it has had: for heavy-tailed lengths what a job has
    had is what to expect of it (least attained service; Gu et al., "Tiresias", NSDI 2019). A new job therefore
    runs soon, and shows its speed.
    """

    name: ClassVar[str] = "srtf"
    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = True
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time, seconds; among those that have not shown it, fewest iterations first."""
        return (expected_s(job, at_s), math.inf if job.spec.iterations is None else job.spec.iterations)

    def drift(self, job: Job) -> float:
        """What remains shrinks."""
        return -1.0

    def lane(self, lane: Lane) -> Key:
        """The emptiest."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """Remaining turn time, seconds."""
        return expected_s(job, job.told_s)


def expected_s(job: Job, at_s: float) -> float:
    """Turn time that a job is expected to need still, seconds."""
    remaining_s = job.remaining_s(at_s)
    return job.attained_s(at_s) if remaining_s is None else remaining_s
