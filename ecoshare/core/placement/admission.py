"""Admission: the queue of waiting jobs, and which of them get a place now."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Protocol

from ecoshare.core.commands import PlanJob
from ecoshare.core.placement.elastic_placement import ElasticPlacement
from ecoshare.core.placement.job_queue import WaitingJobs, demand
from ecoshare.core.placement.lane_index import Fits, LaneIndex
from ecoshare.core.placement.preemption import GiveWay, Preemption, Start
from ecoshare.core.placement.rounds import RoundPlacement
from ecoshare.core.policies.base import ElasticPolicy, LevelPolicy, PlannedPolicy, Policy, RoundPolicy
from ecoshare.core.records import Job, Key, Lane
from ecoshare.core.states import JobState

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

    def line(self, job: Job) -> tuple[object, ...]:
        """Resource class of a waiting job: if one job of a class has no place, none has."""
        ...

    def find(self, job: Job, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes for a job; empty if it has no place now.

        Args:
            job: Waiting job.
            fits: Whether the job may be started in a lane.
            kept: Numbers of lanes that are kept for other jobs.
        """
        ...

    def keep(self, lanes: tuple[Lane, ...]) -> Iterator[int]:
        """Numbers of all lanes that no other job may take, so that one job gets `lanes`."""
        ...


class Admission:
    """Queue of waiting jobs, and the running jobs that may be preempted.

    Attributes:
        waiting: Jobs without a place.
    """

    def __init__(
        self,
        policy: Policy,
        lane_index: LaneIndex,
        preempts: bool,
        fits: Callable[[Job, Lane], bool],
        finder: Finder | None = None,
    ) -> None:
        """Admission without jobs.

        Args:
            policy: Policy of the run.
            lane_index: Index of the lanes.
            preempts: Whether preemption is possible: every device is one lane of one place.
            fits: Whether a job may be started in a lane.
            finder: Finder of places, for a policy that co-locates jobs; None to search the index.
        """
        self.waiting = WaitingJobs(demand if finder is None else finder.line)
        self._finder = finder
        self._policy, self._lane_index, self._fits = policy, lane_index, fits
        self._poured = ElasticPlacement(policy, lane_index, fits) if isinstance(policy, ElasticPolicy) else None
        moves = preempts and policy.preempts
        self._rounds = RoundPlacement(lane_index, fits) if moves and isinstance(policy, RoundPolicy) else None
        self._preemption = Preemption(lane_index, fits) if moves and self._rounds is None else None

    @property
    def pours(self) -> bool:
        """Whether the policy is elastic: the number of devices of a job depends on the other jobs."""
        return self._poured is not None

    def _key(self, job: Job, at_s: float) -> Key:
        return (*self._policy.order(job, at_s), job.arrival_s, job.number)

    def wait(self, job: Job, at_s: float) -> None:
        """Add a job to the queue."""
        job.place = self._key(job, at_s)
        job.waits_since_s = at_s
        self.waiting.add(job)

    def wait_again(self, job: Job, at_s: float) -> None:
        """Add a job that paused to the queue. The next walk looks at the whole queue again."""
        self.wait(job, at_s)
        if self._preemption is not None:
            self._preemption.order_changed()

    def runs(self, job: Job, at_s: float) -> None:
        """Note that a job runs: from now on it may be preempted, if it can be moved."""
        if self._preemption is not None and job.spec.movable:
            self._preemption.runs(job, self._key(job, at_s), self._policy.drift(job), at_s)

    def stops(self, job: Job) -> None:
        """Note that a running job is about to stop or has ended: it can no longer be preempted."""
        if self._preemption is not None and job.spec.movable and job.state is JobState.RUNNING:
            self._preemption.stops(job)

    def gone(self, job: Job) -> None:
        """Note that a job leaves its places."""
        if self._preemption is not None:
            self._preemption.gone(job)

    def change(self, job: Job, at_s: float) -> None:
        """Change the level of a job, and with it the place of the job in the order."""
        assert isinstance(self._policy, LevelPolicy), "only levels change by themselves"
        self._take_out(job)
        self._policy.change(job, at_s)
        self._put_back(job, at_s)

    def question(self, running: Iterable[Job], at_s: float) -> tuple[int, tuple[PlanJob, ...]]:
        """Question to the planner before a round begins: number of devices, and jobs. Without jobs there is none.

        Args:
            running: Jobs that have a place.
            at_s: Present time (s).
        """
        if not isinstance(self._policy, PlannedPolicy):
            return 0, ()
        jobs, devices = self._in_round(running)
        return devices, self._policy.question(jobs, devices, at_s)

    def begin_round(self, running: Iterable[Job], at_s: float) -> None:
        """Begin a round: choose its jobs, or under a policy without preemption set their levels.

        Args:
            running: Jobs that have a place.
            at_s: Present time (s).
        """
        assert isinstance(self._policy, RoundPolicy), "only rounds begin"
        jobs, devices = self._in_round(running)
        chosen = self._policy.arrange(jobs, devices, at_s)
        if self._rounds is not None:
            self._rounds.begin(jobs, chosen)
            return
        places = {job.spec.name: place for place, job in enumerate(chosen)}
        for job in jobs:
            self._take_out(job)
            job.level = places.get(job.spec.name, len(places))
            self._put_back(job, at_s)

    def _in_round(self, running: Iterable[Job]) -> tuple[list[Job], int]:
        """Jobs that a round may choose, in the order of arrival, and the number of devices or turns for them."""
        if self._rounds is None:
            jobs, turns = [*self.waiting, *running], len(self._lane_index.lanes)  # one job of each lane has the turn
        else:
            stuck = [job for job in running if not job.spec.movable or job.state is not JobState.RUNNING]
            jobs = [*self.waiting, *(job for job in running if job not in stuck)]
            turns = self._lane_index.limits()[1] - sum(job.spec.gpus for job in stuck)
        return sorted(jobs, key=attrgetter("number")), turns

    def _take_out(self, job: Job) -> None:
        """Remove a job from the order before its key changes."""
        if job.state is JobState.QUEUED:
            self.waiting.remove(job)
        else:
            self.stops(job)
        if self._preemption is not None:
            self._preemption.order_changed()

    def _put_back(self, job: Job, at_s: float) -> None:
        if job.state is JobState.QUEUED:
            job.place = self._key(job, at_s)
            self.waiting.add(job)
        elif job.state is JobState.RUNNING:
            self.runs(job, at_s)

    def walk(self, at_s: float, newcomer: Job | None = None) -> Iterator[Start | GiveWay]:
        """Actions to take now. The caller carries out each action before it asks for the next.

        Args:
            at_s: Present time (s).
            newcomer: Job that has just arrived, if nothing else has changed; else None.
        """
        if self._poured is not None:
            return self._poured.walk(self.waiting, at_s)
        if self._rounds is not None:
            return self._rounds.walk()
        if self._preemption is not None:
            return self._preemption.walk(self.waiting, newcomer, at_s)
        has_room = self._lane_index.has_places if self._finder is None else self._finder.has_room
        return self._walk() if has_room else iter(())

    def _walk(self) -> Iterator[Start | GiveWay]:
        walk = self.waiting.walk()
        passed: list[Job] = []
        kept: set[int] = set()
        find = self._lane_index.find if self._finder is None else self._finder.find
        while (job := walk.job) is not None:
            if lanes := find(job, partial(self._fits, job), kept):
                yield Start(job, lanes)
                walk.go_on()
                for each in passed:
                    each.passed += 1
                    self._keep(each, kept)
            elif not self._policy.backfill:
                return
            else:
                walk.does_not_fit()
                passed.append(job)
                self._keep(job, kept)
                if self._finder is not None and (len(passed) >= MOST_LOOKED_AT or not self._finder.has_room):
                    return

    def _keep(self, job: Job, kept: set[int]) -> None:
        """Keep lanes for a job that was passed too often."""
        if job.passed >= MOST_PASSED:
            lanes = self._lane_index.emptiest(job.spec.gpus, job.spec.nodes)
            kept.update((lane.number for lane in lanes) if self._finder is None else self._finder.keep(lanes))
