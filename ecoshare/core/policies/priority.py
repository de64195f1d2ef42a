"""The owner's priority, preempting at iteration boundaries."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Lane


class Priority:
    """Highest priority first, in the queue and in the turn; equal priorities share fairly.

    A job of lower priority keeps its place (its memory) and runs while those above it load data or have ended.
    """

    name: ClassVar[str] = "priority"
    places: ClassVar[int | None] = None
    backfill: ClassVar[bool] = True

    def order(self, job: Job) -> tuple[float, ...]:
        """Priority, then arrival."""
        return (-job.spec.priority, job.arrival_s)

    def lane(self, lane: Lane) -> tuple[float, ...]:
        """The lane where the least priority is at work, then the emptiest."""
        return (
            max((job.spec.priority for job in lane.jobs.values()), default=-float("inf")),
            len(lane.jobs),
            lane.number,
        )

    def rank(self, job: Job) -> float:
        """Priority."""
        return -job.spec.priority
