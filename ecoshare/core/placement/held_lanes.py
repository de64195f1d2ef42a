"""Lanes that are held for the jobs of a round, from its plan until the jobs have started there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ecoshare.core.placement.gang_placement import nearer, together
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.replacement import Placed, Replacement
from ecoshare.core.policies.base import MovingPolicy
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState, LaneState


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
