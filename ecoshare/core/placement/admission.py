"""Admission: a walk through the queue, in which each waiting job that has a place now starts.

Then running jobs may be displaced for a waiting job that is ahead of them in the order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from typing import Protocol

from ecoshare.core.placement.device_moves import DeviceMoves
from ecoshare.core.placement.displacement import Displacement
from ecoshare.core.placement.job_queue import WaitingJobs
from ecoshare.core.placement.lane_index import Fits, LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.steps import GiveWay, Park, Start
from ecoshare.core.policies.base import Policy
from ecoshare.core.records import Job, Lane

MOST_PASSED = 16
"""Number of times that jobs behind a waiting job may start before it. From then on, room is kept for the job."""

MOST_LOOKED_AT = 64
"""Most lines without a place in one walk with a finder. The other lines are left for the next walk.

A finder has a line for each class, and in a sweep each job may have a class of its own.
"""


class Finder(Protocol):
    """Finder of places for co-located jobs."""

    @property
    def has_room(self) -> bool:
        """Whether any job could get a place."""
        ...

    def find(self, job: Job, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes for a job; empty if it has no place now.

        Args:
            job: Waiting job.
            fits: Whether the job may be started in a lane.
            kept: Numbers of lanes that are kept for other jobs.
        """
        ...


class Admission:
    """Admission of waiting jobs, in the order of the queue."""

    def __init__(
        self,
        policy: Policy,
        waiting: WaitingJobs,
        lane_index: LaneIndex,
        fit: MemoryFit,
        finder: Finder | None = None,
        displacement: Displacement | None = None,
        moves: DeviceMoves | None = None,
    ) -> None:
        """Admission to the lanes of the index.

        Args:
            policy: Policy of the run.
            waiting: Queue.
            lane_index: Index of the lanes.
            fit: Memory fit of jobs and lanes.
            finder: Finder of places, for a policy that co-locates jobs; None to search the index.
            displacement: Choice of running jobs that give up their places; None if none does.
            moves: Moves of jobs to idle devices; None if no job moves.
        """
        self._policy, self._waiting = policy, waiting
        self._lane_index, self._fit, self._finder = lane_index, fit, finder
        self._displacement, self._moves = displacement, moves

    def walk(self, at_s: float) -> Iterator[Start | GiveWay | Park]:
        """Starts of jobs, and jobs that are displaced. The caller carries out each before it asks for the next."""
        if self._moves is not None:
            yield from self._moves.starts()
        if self._displacement is not None:
            for job in self._displacement.claimants():
                if lanes := self._find(job, set()):
                    yield Start(job, lanes)
        has_room = self._lane_index.has_places if self._finder is None else self._finder.has_room
        if has_room:
            yield from self._walk()
        if self._displacement is not None:
            yield from self._displacement.walk(self._waiting, at_s)

    def _walk(self) -> Iterator[Start]:
        walk = self._waiting.walk()
        passed: list[Job] = []
        kept_out = 0
        kept: set[int] = set()
        while (job := walk.job) is not None:
            if lanes := self._find(job, kept):
                yield Start(job, lanes)
                walk.go_on()
                for each in passed:
                    each.passed += 1
                    self._keep(each, kept)
            elif not self._policy.backfill:
                return
            elif kept_out < MOST_LOOKED_AT and self._fit.latency.keeps_out(job):
                kept_out += 1
                walk.go_on()  # jobs of its line may have shorter iterations
            else:
                walk.does_not_fit()
                passed.append(job)
                self._keep(job, kept)
                if self._finder is not None and (len(passed) >= MOST_LOOKED_AT or not self._finder.has_room):
                    return

    def _find(self, job: Job, kept: set[int]) -> tuple[Lane, ...]:
        if self._displacement is not None:
            kept = kept | self._displacement.kept_from(job)
        coming = set() if self._moves is None else self._moves.comes_to(job)
        return (coming and self._search(job, kept | coming)) or self._search(job, kept)

    def _search(self, job: Job, kept: set[int]) -> tuple[Lane, ...]:
        fits = partial(self._fit.fits, job)
        if self._finder is not None:
            return self._finder.find(job, fits, kept)
        return self._lane_index.find(job, fits, kept, partial(self._fit.match, job))

    def _keep(self, job: Job, kept: set[int]) -> None:
        """Keep the devices for a job that was passed too often: its memory may come free in any of their lanes."""
        if job.passed >= MOST_PASSED:
            lanes = (job.parked_in,) if job.parked_in else self._lane_index.emptiest(job.spec.gpus, job.spec.nodes)
            kept.update(self._lane_index.beside(lanes))
