"""Shortest remaining time first, preempting at iteration boundaries."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Lane


class Srtf:
    """The job that needs the least turn time to finish has the turn: the best mean JCT where lengths are known.

    Source: SRTF of Salus (Yu and Chowdhury, MLSys 2020, section 4). A job whose `iterations` nobody gave, or that
    has not shown its speed yet, counts as needing as long as it has had: for heavy-tailed lengths what a job has
    had is what to expect of it (least attained service; Gu et al., "Tiresias", NSDI 2019). A new job therefore
    runs soon, and shows its speed.
    """

    name: ClassVar[str] = "srtf"
    places: ClassVar[int | None] = None
    backfill: ClassVar[bool] = True

    def order(self, job: Job) -> tuple[float, ...]:
        """Fewest iterations first; unknown lengths after them. Speeds are not known before a job has run."""
        return (float("inf") if job.spec.iterations is None else job.spec.iterations, job.arrival_s)

    def lane(self, lane: Lane) -> tuple[float, ...]:
        """The emptiest."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """Remaining turn time, seconds."""
        remaining_s = job.remaining_s
        return job.attained_s if remaining_s is None else remaining_s
