"""Placement in rounds: the jobs of a round are chosen when it begins, and no other job runs before the next round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.preemption import GiveWay, Start
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState


class RoundPlacement:
    """Placement in rounds. Every device is one lane of one place, and jobs that were not chosen give way."""

    def __init__(self, lane_index: LaneIndex, fits: Callable[[Job, Lane], bool]) -> None:
        self._lane_index, self._fits = lane_index, fits
        self._chosen: list[Job] = []
        self._leaving: list[Job] = []

    def begin(self, jobs: Sequence[Job], chosen: Sequence[Job]) -> None:
        """Begin a round.

        Args:
            jobs: Jobs that the round could choose.
            chosen: Jobs that run in the round, in order.
        """
        self._chosen = list(chosen)
        run = set(chosen)
        self._leaving = [job for job in jobs if job.state is JobState.RUNNING and job not in run]

    def walk(self) -> Iterator[Start | GiveWay]:
        """Actions to take now. A chosen job that does not fit yet waits for the jobs that leave."""
        leaving, self._leaving = self._leaving, []
        coming = [job for job in self._chosen if job.state is JobState.QUEUED]
        if leaving:
            yield GiveWay(leaving, coming[0] if coming else None)
        for job in coming:
            if lanes := self._lane_index.find(job, partial(self._fits, job)):
                yield Start(job, lanes)
