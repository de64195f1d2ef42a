"""First in, first out: the baseline without sharing."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Key, Lane


class Fifo:
    """One job a lane, strictly in the order of arrival; a job that does not fit holds back those behind it."""

    name: ClassVar[str] = "fifo"
    places: ClassVar[int | None] = 1
    preempts: ClassVar[bool] = False
    backfill: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return ()

    def drift(self, job: Job) -> float:
        """None."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """The lowest number."""
        return (lane.number,)

    def rank(self, job: Job) -> float:
        """Nobody to compete with."""
        return 0.0
