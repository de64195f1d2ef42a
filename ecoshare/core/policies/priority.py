"""The owner's priority, preempting at iteration boundaries."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key, Lane


class Priority(Usual):
    """Highest priority first, in the queue and in the turn; equal priorities share fairly.

    A job of lower priority keeps its place (its memory) and runs while those above it load data or have ended.
    """

    name: ClassVar[str] = "priority"
    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Priority, then arrival."""
        return (-job.spec.priority,)

    def lane(self, lane: Lane) -> Key:
        """The lane where the least priority is at work, then the emptiest."""
        return (
            max((job.spec.priority for job in lane.jobs.values()), default=-float("inf")),
            len(lane.jobs),
            lane.number,
        )
