"""Rounds: the jobs of a round are chosen when it begins, at a fixed time or when all jobs of the last round have ended.

::

    a round is due ──► AskPlanner ──► Planned ──► the policy arranges the jobs ──► the chosen jobs run
                 └──── (no planner, or its last answer still holds) ────┘
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from ecoshare.core.commands import AskPlanner
from ecoshare.core.events import Done, Planned
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.held_lanes import HeldLanes, plan_lanes
from ecoshare.core.placement.steps import GiveWay, Park, RankLanes, Start, Step
from ecoshare.core.placement.strategy import Answer, PlacementParts, PlacementStrategy
from ecoshare.core.policies.base import FillingPolicy, MovingPolicy, PlannedPolicy, RoundPolicy
from ecoshare.core.records import Job
from ecoshare.core.states import JobState, LaneState


class RoundPlacement(PlacementStrategy):
    """Strategy of a policy that decides in rounds; base of the two ways in which chosen jobs go first."""

    def __init__(
        self,
        parts: PlacementParts,
        rounds: RoundPolicy,
        planned: PlannedPolicy | None,
        opened_s: float,
        next_id: Callable[[], int],
    ) -> None:
        """Strategy without jobs.

        Args:
            parts: Parts of the run.
            rounds: The policy.
            planned: The policy, if it asks a planner before a round; else None.
            opened_s: Time (s) at which the run was opened: the first round begins then.
            next_id: Function that returns the id of the next command.
        """
        super().__init__(parts)
        self._rounds, self._planned, self._next_id = rounds, planned, next_id
        self._began_s = -math.inf  # begin of the last round; minus infinity for none
        self._asked: int | None = None
        self._timers.set_round(opened_s)

    def fill(self, at_s: float, newcomer: Job | None = None) -> Iterator[Step]:
        """Steps that use the free places. If all jobs of the last round have ended, another round begins."""
        state = self._state
        is_over = not state.placed and state.live and at_s > self._began_s
        return self._begin_round(at_s) if is_over and state.may_start else super().fill(at_s, newcomer)

    def owns(self, command: int) -> bool:
        """Whether a command is a question to the planner or a timer, and has no answer yet."""
        return command == self._asked or super().owns(command)

    def answered(self, event: Answer) -> Iterator[Step]:
        """Steps after the answer of the planner, or after a timer."""
        if isinstance(event, Planned):
            assert self._planned is not None, "only a planner plans"
            self._asked = None
            self._planned.told(event.shares)
            yield from self._choose(event.at_s)
            return
        assert isinstance(event, Done), "a timer is never refused"
        names, round_begins = self._timers.due(event)
        yield from self._change_levels(names, event.at_s)
        yield from self._begin_round(event.at_s) if round_begins else self.fill(event.at_s)

    def _begin_round(self, at_s: float) -> Iterator[Step]:
        """Choose the jobs of the round that begins. If there is a planner to ask, its answer comes first."""
        if self._asked is not None:
            yield from self._timers.wake()
            return
        if not self._state.live:  # a job that arrives begins the next round
            self._began_s = -math.inf
            self._timers.set_round(math.inf)
            return
        self._began_s = at_s
        self._timers.set_round(at_s + self._rounds.round_s)
        if self._planned is not None:
            jobs, devices = self._candidates()
            if question := self._planned.question(jobs, devices, at_s):
                self._asked = self._next_id()
                yield AskPlanner(self._asked, self._planned.planner, devices, question, self._planned.planned_by)
                yield from self._timers.wake()
                return
        yield from self._choose(at_s)

    def _choose(self, at_s: float) -> Iterator[Step]:
        jobs, devices = self._candidates()
        self._begin(jobs, self._rounds.arrange(jobs, devices, at_s), at_s)
        yield from super().fill(at_s)
        yield RankLanes(self.lane_index.lanes.values())

    @abstractmethod
    def _candidates(self) -> tuple[list[Job], int]:
        """Jobs that a round may choose, in the order of arrival, and the number of devices or turns for them."""

    @abstractmethod
    def _begin(self, jobs: Sequence[Job], chosen: Sequence[Job], at_s: float) -> None:
        """Begin a round in which `chosen` of `jobs` run or go first, in this order."""


class PreemptiveRounds(RoundPlacement):
    """Rounds with preemption: jobs that were not chosen give way, and no other job runs before the next round.

    If the policy fills free devices, other jobs run on devices that the chosen ones do not need. If the policy moves
    jobs, running jobs also leave for lanes where they are less slow. They give way together, and start in the lanes
    that were planned for them. The plan holds until the next round.
    """

    def __init__(
        self,
        parts: PlacementParts,
        rounds: RoundPolicy,
        planned: PlannedPolicy | None,
        opened_s: float,
        next_id: Callable[[], int],
        moving: MovingPolicy | None,
        filling: FillingPolicy | None,
    ) -> None:
        """Strategy without jobs; see `RoundPlacement`.

        Args:
            moving: The policy, if it moves running jobs; else None.
            filling: The policy, if it fills free devices within a round; else None.
        """
        super().__init__(parts, rounds, planned, opened_s, next_id)
        self._moving, self._filling = moving, filling
        self._chosen: Sequence[Job] = ()
        self._leaving: Sequence[Job] = ()
        self._held = HeldLanes()

    def _candidates(self) -> tuple[list[Job], int]:
        running = self.lane_index.placed_jobs()
        stuck = [job for job in running if not job.spec.movable or job.state is not JobState.RUNNING]
        jobs = [*self.waiting, *(job for job in running if job not in stuck)]
        taken = sum(lane.state is LaneState.OPEN for job in stuck for lane in job.lanes)
        devices = self.lane_index.limits()[1] - taken
        return sorted(jobs, key=attrgetter("number")), devices

    def _begin(self, jobs: Sequence[Job], chosen: Sequence[Job], at_s: float) -> None:
        run = set(chosen)
        self._chosen = list(chosen)
        self._leaving = [job for job in jobs if job.state is JobState.RUNNING and job not in run]
        self._held = HeldLanes()
        if self._moving is not None and self.lane_index.differ and math.isfinite(self._moving.move_s):
            self._held = plan_lanes(self._chosen, self._leaving, self._moving, self.lane_index, at_s)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        """Steps of the round. A chosen job that does not fit yet waits for the jobs that leave."""
        leaving, self._leaving = list(self._leaving), ()
        coming = [job for job in self._chosen if job.state is JobState.QUEUED]
        if leaving:
            yield GiveWay(leaving, coming[0] if coming else None)
        if moving := self._held.movers():
            yield GiveWay(moving, None, "moves to devices that are faster for the jobs of the round")
        for job in coming:
            fits = partial(self.fit.fits, job)
            if self._held.waits(job, fits):
                continue
            if lanes := self._held.take(job) or self.lane_index.find(job, fits, self._held.kept()):
                yield Start(job, lanes)
        if self._filling is not None and self.lane_index.has_places:
            yield from self._fill_up(self._filling, at_s)

    def _fill_up(self, filling: FillingPolicy, at_s: float) -> Iterator[Start]:
        """Starts of jobs in lanes that the chosen jobs leave free, because one has ended or too few had come."""
        if any(job.state is JobState.QUEUED for job in self._chosen):
            return  # free lanes are for these
        free = sum(lane.state is LaneState.OPEN and lane.has_place for lane in self.lane_index.lanes.values())
        jobs = sorted(self.waiting, key=attrgetter("number"))
        for job in filling.fill(jobs, free, at_s) if jobs else ():
            if lanes := self.lane_index.find(job, partial(self.fit.fits, job), self._held.kept()):
                yield Start(job, lanes)


class RoundsOfTurns(RoundPlacement):
    """Rounds without preemption: the chosen jobs go first in the turns of their lanes, and in the queue."""

    def __init__(
        self,
        parts: PlacementParts,
        rounds: RoundPolicy,
        planned: PlannedPolicy | None,
        opened_s: float,
        next_id: Callable[[], int],
    ) -> None:
        super().__init__(parts, rounds, planned, opened_s, next_id)
        self._admission = Admission(
            self.policy, self.waiting, self.lane_index, self.fit, displacement=parts.displacement
        )

    def _candidates(self) -> tuple[list[Job], int]:
        jobs = [*self.waiting, *self.lane_index.placed_jobs()]
        lanes = sum(lane.state is not LaneState.CLOSED for lane in self.lane_index.lanes.values())
        return sorted(jobs, key=attrgetter("number")), lanes  # one job of each lane has the turn

    def _begin(self, jobs: Sequence[Job], chosen: Sequence[Job], at_s: float) -> None:
        places = {job.spec.name: place for place, job in enumerate(chosen)}
        for job in jobs:
            self.reorder(job, partial(setattr, job, "level", places.get(job.spec.name, len(places))), at_s)

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Start | GiveWay | Park]:
        return self._admission.walk(at_s)
