"""Priorities that the user sets, for the queue and for the turns at iteration boundaries."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key, Lane


class Priority(Usual):
    """Policy that puts the highest priority first, in the queue and in the turn. Equal priorities share fairly.

    A job of lower priority keeps its place (its memory), and runs while jobs of higher priority load data or after they
    have ended.
    """

    name: ClassVar[str] = "priority"
    needs_places: ClassVar[bool] = True
    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Priority, the highest first. Ties go by arrival."""
        return (-job.spec.priority,)

    def lane(self, lane: Lane) -> Key:
        """Highest priority among the jobs of the lane, the lowest first."""
        return (max((job.spec.priority for job in lane.jobs.values()), default=-float("inf")),)
