"""Rounds: the jobs of a round are chosen when it begins, at a fixed time or when all jobs of the last round have ended.

::

    a round is due ──► AskPlanner ──► Planned ──► the policy arranges the jobs ──► the chosen jobs run
                 └──── (no planner, or its last answer still holds) ────┘
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from ecoshare.core.commands import AskPlanner
from ecoshare.core.events import Done, Planned
from ecoshare.core.placement.admission import Admission
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.linked_lanes import nearer, together
from ecoshare.core.placement.steps import GiveWay, Park, RankLanes, Start, Step
from ecoshare.core.placement.strategy import Answer, PlacementParts, PlacementStrategy
from ecoshare.core.policies.base import FillingPolicy, MovingPolicy, PlannedPolicy, RoundPolicy
from ecoshare.core.records import Job, JobState, Lane, LaneState

_PASSES = 3
"""Most times that each job is offered better lanes. Later exchanges gain little."""

_COMPARED, _BOUNDS = 64, 12
"""Most lanes beyond its number that a job compares, and most bounds on the slowness that it tries."""


@dataclass(slots=True, eq=False)
class Placed:
    """A job of the round, with the lanes that are planned for it.

    Attributes:
        job: The job.
        lanes: Numbers of the planned lanes.
        before: Numbers of the lanes in which the job runs; empty if it waits for a place.
        weight_s: Remaining time (s) of the job where it is as fast as on a typical device.
        slow: Slowness of the job in each lane that the round may use: time there / time on a typical device.
        slowness: Slowness of the job in the planned lanes.
    """

    job: Job
    lanes: frozenset[int]
    before: frozenset[int]
    weight_s: float
    slow: Mapping[int, float]
    slowness: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether the job runs and must leave its lanes."""
        return bool(self.before) and self.lanes != self.before


class Replacement:
    """Exchanges of lanes between the jobs of a round.

    ::

        jobs of the round, in their lanes ──► exchanges of lanes that pay, the best one of each job ──► planned lanes

    The planned lanes should make the sum of the remaining times of all jobs small. A job takes faster lanes from
    another job, which gets slower ones for them, only if both together gain more than the moves cost.
    """

    def __init__(self, placed: Sequence[Placed], lanes: Iterable[Lane], across: float, move_s: float) -> None:
        """Jobs in the lanes where they run or would start.

        Args:
            placed: Jobs of the round, those that choose first before the others. No lane has two of them.
            lanes: All lanes that the round may use, each on a device of its own.
            across: Slowness of a gang over several nodes / slowness in one node.
            move_s: Time (s) that a stop and a start cost.
        """
        self._placed, self._across, self._move_s = placed, across, move_s
        self._node = {lane.number: lane.device.node for lane in lanes}
        self._owner = {number: each for each in placed for number in each.lanes}
        for each in placed:
            each.slowness = self._slowness(each, each.lanes)

    def improve(self) -> None:
        """Make exchanges as long as they pay."""
        for _ in range(_PASSES):
            exchanges = [self._exchange(each) for each in self._placed]
            if not any(exchanges):
                break

    def _exchange(self, one: Placed) -> bool:
        """Give a job better lanes if that pays. Returns whether it did."""
        fastest = sorted(one.slow, key=one.slow.__getitem__)[: len(one.lanes) + _COMPARED]
        least = one.slow[fastest[len(one.lanes) - 1]]
        cost_s = self._move_s if one.before and not one.moves else 0.0
        if one.weight_s * (one.slowness - least) <= cost_s:
            return False
        best_s, best = -1e-6, None
        for wanted in self._wanted(one, fastest):
            after = self._after(one, wanted)
            if after is not None and (change_s := self._change_s(after)) < best_s:
                best_s, best = change_s, after
        if best is None:
            return False
        for each, lanes in best.items():
            for number in each.lanes:
                if self._owner.get(number) is each:
                    del self._owner[number]
            each.lanes, each.slowness = lanes, self._slowness(each, lanes)
            self._owner.update(dict.fromkeys(lanes, each))
        return True

    def _wanted(self, one: Placed, fastest: Sequence[int]) -> Iterator[frozenset[int]]:
        """Sets of lanes that would be less slow for a job."""
        size = len(one.lanes)
        below = [number for number in fastest if one.slow[number] < max(one.slow[each] for each in one.lanes)]
        harm_s = {number: self._harm_s(one, number) for number in below}
        levels = sorted({one.slow[number] for number in below[size - 1 :]}, reverse=True)
        for level in levels[:: max(1, len(levels) // _BOUNDS)]:
            kept = [number for number in one.lanes if one.slow[number] <= level]
            others = [number for number in below if one.slow[number] <= level and number not in one.lanes]
            others.sort(key=lambda number: (harm_s[number], one.slow[number]))
            if len(kept) + len(others) >= size:
                yield frozenset([*kept, *others[: size - len(kept)]])
        if size > 1:
            nodes: dict[str, list[int]] = {}
            for number in fastest:
                here = nodes.setdefault(self._node[number], [])
                here.append(number)
                if len(here) == size and one.lanes != frozenset(here):
                    yield frozenset(here)

    def _harm_s(self, one: Placed, number: int) -> float:
        """Time (s) that the owner of a lane would lose about if it got the slowest lane of `one` for it."""
        owner = self._owner.get(number)
        if owner is None or owner is one:
            return 0.0
        worst = max(one.lanes, key=one.slow.__getitem__)
        slower = max(owner.slow[worst], *(owner.slow[each] for each in owner.lanes if each != number), 0.0)
        cost_s = self._move_s if owner.before and not owner.moves else 0.0
        return owner.weight_s * (slower - owner.slowness) + cost_s

    def _after(self, one: Placed, wanted: frozenset[int]) -> dict[Placed, frozenset[int]] | None:
        """Lanes of all jobs that an exchange concerns; None if a job would span too many nodes."""
        taken = sorted(wanted - one.lanes)
        left = sorted(one.lanes - wanted)
        left += [number for number in self._node if number not in self._owner and number not in wanted]
        losers: dict[Placed, list[int]] = {}
        for number in taken:
            if (owner := self._owner.get(number)) is not None:
                losers.setdefault(owner, []).append(number)
        after = {one: wanted}
        for owner in sorted(losers, key=lambda each: -each.weight_s * len(losers[each])):
            lost = losers[owner]
            left.sort(key=owner.slow.__getitem__)
            after[owner] = (owner.lanes - frozenset(lost)) | frozenset(left[: len(lost)])
            del left[: len(lost)]
        for each, lanes in after.items():
            nodes = each.job.spec.nodes
            if nodes is not None and len({self._node[number] for number in lanes}) > nodes:
                return None
        return after

    def _change_s(self, after: Mapping[Placed, frozenset[int]]) -> float:
        """Change (s) of the sum of the remaining times, with the costs of moves."""
        change_s = 0.0
        for each, lanes in after.items():
            change_s += each.weight_s * (self._slowness(each, lanes) - each.slowness)
            if each.before:
                change_s += self._move_s * ((lanes != each.before) - (each.lanes != each.before))
        return change_s

    def _slowness(self, one: Placed, lanes: Iterable[int]) -> float:
        slowest = max(one.slow[number] for number in lanes)
        spans = len(one.lanes) > 1 and len({self._node[number] for number in lanes}) > 1
        return slowest * self._across if spans else slowest


class HeldLanes:
    """Lanes for jobs that move or wait. A job waits until all of its lanes are free.

    Nothing waits for ever: a lane that closed or that is not fit for the job gives the job up, and the next round
    replaces the plan.
    """

    def __init__(self, planned: Mapping[Job, tuple[Lane, ...]] | None = None) -> None:
        """Lanes as planned, by job; none by default."""
        self._planned = dict(planned or {})
        self._movers = [job for job in self._planned if job.state is JobState.RUNNING]

    def movers(self) -> list[Job]:
        """Running jobs that must leave their lanes. The second call of a round returns none."""
        movers, self._movers = self._movers, []
        return [job for job in movers if job.state is JobState.RUNNING]

    def waits(self, job: Job, fits: Callable[[Lane], bool]) -> bool:
        """Whether a job waits for its lanes. If it can never start there in this round, it loses them."""
        lanes = self._planned.get(job, ())
        if any(lane.state is not LaneState.OPEN or (not lane.jobs and not fits(lane)) for lane in lanes):
            del self._planned[job]
            return False
        return any(lane.jobs for lane in lanes)

    def take(self, job: Job) -> tuple[Lane, ...]:
        """Lanes of a job that starts now; empty if none are held for it."""
        return self._planned.pop(job, ())

    def kept(self) -> set[int]:
        """Numbers of the lanes that are held for jobs which have not started yet."""
        if not self._planned:
            return set()
        coming = (JobState.QUEUED, JobState.STOPPING)
        return {lane.number for job, lanes in self._planned.items() if job.state in coming for lane in lanes}


def plan_lanes(
    chosen: Sequence[Job], leaving: Sequence[Job], policy: MovingPolicy, lane_index: LaneIndex, at_s: float
) -> HeldLanes:
    """Lanes for the jobs of a round that wait or should move.

    Jobs that wait choose one after the other among the lanes that are free or come free. Then lanes are exchanged
    (`Replacement`). A job with an unknown remaining time neither moves nor gives its lanes to another job.

    Args:
        chosen: Jobs of the round, in the order of the policy.
        leaving: Running jobs that give way.
        policy: Policy that knows how slow each job is in each lane.
        lane_index: Index of the lanes.
        at_s: Present time (s).
    """
    gone = set(leaving)
    lanes = {lane.number: lane for of in lane_index.devices.values() for lane in of if _may_plan(lane, of)}
    free = {number: lane for number, lane in lanes.items() if gone.issuperset(lane.jobs.values())}
    placed: list[Placed] = []
    start: dict[Job, tuple[Lane, ...]] = {}
    for job in chosen:
        runs = job.state is JobState.RUNNING
        found = job.lanes if runs else _least_slow(job, list(free.values()), policy)
        if not found or not all(lane.number in lanes for lane in found):
            continue
        for lane in found:
            free.pop(lane.number, None)
        if not runs:
            start[job] = found
        remaining_s = job.remaining_s(at_s)
        if remaining_s is None or job.is_suspect:
            continue
        numbers = frozenset(lane.number for lane in found)
        placed.append(Placed(job, numbers, numbers if runs else frozenset(), remaining_s, {}))
    usable = sorted({*free, *(number for each in placed for number in each.lanes)})
    for each in placed:
        each.slow = {number: policy.slowness(each.job, lanes[number]) for number in usable}
        if each.before:  # the remaining time of a running job is that in its present lanes
            each.weight_s /= max(each.slow[number] for number in each.before)
    Replacement(placed, [lanes[number] for number in usable], policy.across, policy.move_s).improve()
    for each in placed:
        if each.moves or not each.before:
            start[each.job] = tuple(lanes[number] for number in sorted(each.lanes))
    return HeldLanes(start)


def _may_plan(lane: Lane, lanes: Sequence[Lane]) -> bool:
    """Whether a lane can be planned: it is open, and the only one of its device, for one job."""
    return lane.state is LaneState.OPEN and lane.places == 1 and len(lanes) == 1


def _least_slow(job: Job, lanes: Sequence[Lane], policy: MovingPolicy) -> tuple[Lane, ...]:
    """Lanes in which a job is least slow; empty if too few are free."""
    slowness = partial(policy.slowness, job)
    within = together(lanes, job.spec.gpus, 1, slowness)
    if job.spec.nodes == 1 or job.spec.gpus == 1:
        return within
    over = together(lanes, job.spec.gpus, job.spec.nodes, slowness)
    return nearer(within, over, slowness, policy.across)


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
