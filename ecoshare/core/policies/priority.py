"""The owner's priority, preempting at iteration boundaries."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Key, Lane


class Priority:
    """Highest priority first, in the queue and in the turn; equal priorities share fairly.

    A job of lower priority keeps its place (its memory) and runs while those above it load data or have ended.
    """

    name: ClassVar[str] = "priority"
    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = False
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    def order(self, job: Job, at_s: float) -> Key:
        """Priority, then arrival."""
        return (-job.spec.priority,)

    def drift(self, job: Job) -> float:
        """None."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """The lane where the least priority is at work, then the emptiest."""
        return (
            max((job.spec.priority for job in lane.jobs.values()), default=-float("inf")),
            len(lane.jobs),
            lane.number,
        )

    def rank(self, job: Job) -> float:
        """Priority."""
        return -job.spec.priority
