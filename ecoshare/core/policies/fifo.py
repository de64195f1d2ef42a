"""First in, first out: the baseline without sharing."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Lane


class Fifo:
    """One job a lane, strictly in the order of arrival; a job that does not fit holds back those behind it."""

    name: ClassVar[str] = "fifo"
    places: ClassVar[int | None] = 1
    backfill: ClassVar[bool] = False

    def order(self, job: Job) -> tuple[float, ...]:
        """Order of arrival."""
        return (job.arrival_s,)

    def lane(self, lane: Lane) -> tuple[float, ...]:
        """The lowest number."""
        return (lane.number,)

    def rank(self, job: Job) -> float:
        """Nobody to compete with."""
        return 0.0
