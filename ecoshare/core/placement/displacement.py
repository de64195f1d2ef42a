"""Displacement: running jobs are parked or stopped, so that a waiting job that is ahead of them in the order has room.

::

    order      A  B  C │ W  D │ E            W waits; D and E run, and are behind it
    device     A  B  C  D  E        W        no place, or not enough memory
               A  B  C  D      ◄──  W        E is parked: its next turn is furthest away; the others go on meanwhile
               A  B  C  D  W            E   E waits on the host, until the order puts it before a running job

A running job keeps its place for so long that the two transfers of its memory cost little of that time
(`HostMemory.least_stay_s`). So no two jobs displace each other all the time.

A policy with equal ranks (`Policy.rotates`) has no lasting order. There the job that has had its place for longest is
parked for the job that has waited for longest, once that has waited for as long as a job keeps its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from ecoshare.core.memory import HostMemory, size_bytes
from ecoshare.core.moves import JobMoves
from ecoshare.core.placement.job_queue import WaitingJobs, queue_key
from ecoshare.core.placement.lane_index import MOST_COMPARED, LaneIndex
from ecoshare.core.placement.limits import clash, clash_words
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.steps import GiveWay, Park, Step
from ecoshare.core.policies.base import Policy
from ecoshare.core.policy_timers import PolicyTimers
from ecoshare.core.records import Job, JobState, Key, Lane, LaneState

LOOK_AGAIN_S = 1.0
"""Shortest time (s) until the next look at an order that changes as jobs run."""

_MOST_WAITING = 16
"""Most waiting jobs, each the first of its kind, for which room is made or looked for at once."""

_MOST_PARKED = 256
"""Most jobs among which the one that has waited for longest is found. A parked job is a kind of its own."""


class _Resident(NamedTuple):
    """Job with a place that may leave it.

    Attributes:
        is_new: Whether it is on its way: it gets its memory back, or moves to another lane.
        may_stop: Whether it is stopped if it cannot be parked.
        key: Sort key in the order of the policy.
        leave_key: Sort key among the jobs of its device; the largest leaves first.
        stays_until_s: Time (s) until which it keeps its place.
        least_s: Length (s) of time for which a job keeps its place.
    """

    job: Job
    is_new: bool
    may_stop: bool
    key: Key
    leave_key: Key
    stays_until_s: float
    least_s: float


class Displacement:
    """Choice of the running jobs that give up their places.

    On each device, room is made for one waiting job at a time.
    """

    def __init__(
        self,
        policy: Policy,
        lane_index: LaneIndex,
        fit: MemoryFit,
        host: HostMemory,
        timers: PolicyTimers,
        is_held: Callable[[str], bool],
        stops_movable: bool,
    ) -> None:
        """Displacement in the lanes of an index.

        Args:
            policy: Policy of the run.
            lane_index: Index of the lanes.
            fit: Memory fit of jobs and lanes.
            host: Host memory for parked jobs.
            timers: Timers of the strategy, which wake it when a job may be displaced that may not be now.
            is_held: Whether a window or a measurement is under way on a device. No job may come, go or move meanwhile.
            stops_movable: Whether jobs that are movable, and cannot be parked, are stopped.
        """
        self._policy, self._lane_index, self._fit, self._host = policy, lane_index, fit, host
        self._timers, self._is_held, self._stops_movable = timers, is_held, stops_movable
        self._begun: dict[Job, int] = {}  # attempts that have shown an iteration
        self._claims: dict[str, tuple[Job, list[Job]]] = {}  # the claimant of each device, and the jobs that leave

    def claimants(self) -> list[Job]:
        """Waiting jobs for which all others have left, to be started before the rest of the queue. Their claims end.

        There are none if the order decides: no job behind a claimant could take its room, and a job ahead of it may.
        """
        over = [
            device
            for device, (_, leaving) in self._claims.items()
            if not any(each.state.is_leaving for each in leaving)
        ]
        jobs = [self._claims.pop(device)[0] for device in over]
        return [job for job in jobs if job.state.waits] if self._policy.rotates else []

    def has_begun(self, job: Job) -> bool:
        """Whether a running job has just shown its first iteration, so that it may be displaced from now on."""
        if not job.usage.done or self._begun.get(job) == job.attempt:
            return False
        self._begun[job] = job.attempt
        return True

    def ended(self, job: Job) -> None:
        """Forget a job that has ended."""
        self._begun.pop(job, None)

    def kept_from(self, job: Job) -> set[int]:
        """Numbers of the lanes that other jobs are leaving for a waiting job before `job`."""
        rotates = self._policy.rotates
        devices = [
            device
            for device, (claimant, _) in self._claims.items()
            if claimant.state.waits and (claimant is not job if rotates else claimant.place < job.place)
        ]
        return {lane.number for device in devices for lane in self._lane_index.devices[device]}

    def walk(self, waiting: WaitingJobs, at_s: float) -> Iterator[GiveWay | Park]:
        """Steps after which a waiting job has room. The caller has started all jobs that have room already.

        Room is made on the device where the leaving jobs are last in the order, and fewest. The timer of the next look
        is set, if a later one may find more.
        """
        next_s = math.inf
        residents: dict[str, list[_Resident]] = {}
        served = {claimant for claimant, _ in self._claims.values()}
        for job in self._candidates(waiting):
            if job in served:  # others are leaving for it already
                continue
            found, later_s = list[tuple[tuple[Key, int], str, list[Job]]](), next_s
            for device in self._devices_for(job):
                if self._is_held(device):
                    later_s = min(later_s, at_s + LOOK_AGAIN_S)
                    continue
                if device in self._claims:
                    continue
                if device not in residents:
                    residents[device] = self._residents(device, at_s)
                leaving, look_s = self._leaving(job, device, residents[device], at_s)
                later_s = min(later_s, look_s)
                if leaving:
                    first = min(each.leave_key for each in residents[device] if each.job in leaving)
                    found.append(((first, -len(leaving)), device, leaving))
            if not found:
                next_s = later_s
                continue
            _, device, leaving = max(found, key=itemgetter(0))
            self._claims[device] = job, leaving
            yield from (Park(each, job) if self._host.may_park(each) else GiveWay([each], job) for each in leaving)
        self._timers.set_look(next_s)

    def _candidates(self, waiting: WaitingJobs) -> list[Job]:
        """Waiting jobs for which room may be made: the first of each kind, in the order in which they are served."""
        walk, heads = waiting.walk(), list[Job]()
        most = _MOST_PARKED if self._policy.rotates else _MOST_WAITING
        while (job := walk.job) is not None and len(heads) < most:
            if job.spec.gpus == 1 and not self._fit.apart(job):
                heads.append(job)
            walk.does_not_fit()
        return sorted(heads, key=_waits_since)[:_MOST_WAITING] if self._policy.rotates else heads

    def _devices_for(self, job: Job) -> Sequence[str]:
        if job.parked_in is not None:
            return (job.parked_in.device.name,)
        return list(islice(self._lane_index.devices, MOST_COMPARED))

    def _residents(self, device: str, at_s: float) -> list[_Resident]:
        """Jobs of a device that may leave, now or later, the one that leaves first at the beginning."""
        lanes = self._lane_index.devices[device]
        jobs = [each for lane in lanes for each in lane.jobs.values()]
        found = []
        for job in jobs:
            is_new = job.state is JobState.RESUMING or any(job.spec.name in lane.coming for lane in lanes)
            # A stop costs a start of the script, so jobs of equal rank are never stopped for each other.
            may_stop = self._stops_movable and not self._policy.rotates and may_be_stopped(job)
            if is_new or (job.state is JobState.RUNNING and (may_stop or self._host.may_park(job))):
                key = queue_key(self._policy, job, at_s)
                since_s, least_s = job.history[-1].at_s, self._host.least_stay_s(job, len(jobs))
                leave_key = (-since_s, job.number) if self._policy.rotates else key
                until_s = max(since_s + least_s, self._host.asked_again_s(job))
                found.append(_Resident(job, is_new, may_stop, key, leave_key, until_s, least_s))
        return sorted(found, key=attrgetter("leave_key"), reverse=True)

    def _leaving(self, job: Job, device: str, residents: Sequence[_Resident], at_s: float) -> tuple[list[Job], float]:
        """Jobs of a device that leave for `job`, and the time (s) of the next look; no jobs if they would not help."""
        lanes = [lane for lane in self._lane_index.devices[device] if lane.state is LaneState.OPEN]
        if job.parked_in is not None:
            lanes = [job.parked_in]
        leaving, next_s, parked_bytes = list[Job](), math.inf, 0
        for each in residents:
            from_s = self._displaceable_from_s(each, job, at_s)
            if each.is_new or from_s > at_s:
                next_s = min(next_s, max(from_s, at_s + LOOK_AGAIN_S))
                continue
            may_park = self._host.may_park(each.job, parked_bytes)
            if not may_park and not each.may_stop:
                continue
            parked_bytes += size_bytes(each.job) if may_park else 0
            leaving.append(each.job)
            if self._has_room(job, lanes, leaving):
                return self._fewest(job, lanes, leaving), math.inf
        return [], next_s

    def _fewest(self, job: Job, lanes: Sequence[Lane], leaving: list[Job]) -> list[Job]:
        """The jobs that must leave of these: those before the last in the list may not be needed."""
        for other in reversed(leaving[:-1]):
            if self._has_room(job, lanes, rest := [each for each in leaving if each is not other]):
                leaving = rest
        return leaving

    def _displaceable_from_s(self, resident: _Resident, ahead: Job, at_s: float) -> float:
        """Time (s) from which a running job may be displaced by `ahead`: now, later, or never (infinity)."""
        if self._policy.rotates:
            return max(resident.stays_until_s, ahead.waits_since_s + resident.least_s)
        if resident.key > ahead.place:
            return resident.stays_until_s
        drift = self._policy.drift(resident.job) if self._policy.preempts else 0.0
        later_s = at_s + (ahead.place[0] - resident.key[0]) / drift if drift > 0.0 else math.inf
        return max(resident.stays_until_s, later_s)

    def _has_room(self, job: Job, lanes: Sequence[Lane], leaving: Sequence[Job]) -> bool:
        """Whether the job would have a place and memory in one of the lanes without the jobs that leave."""
        device = lanes[0].device
        rest = [
            each for lane in self._lane_index.devices[device.name] for each in lane.jobs.values() if each not in leaving
        ]
        for lane in lanes:
            others = [*lane.coming.values(), *(each for each in lane.jobs.values() if each in rest)]
            newcomer = {lane.number: [self._fit.demand(job, lane)]}
            if len(others) >= lane.places or not self._fit.latency.admits(job, others):
                continue
            if self._fit.needed_bytes(device.name, newcomer, only=rest) <= self._fit.capacity(device):
                return True
        return False


def _waits_since(job: Job) -> tuple[float, int]:
    return (job.waits_since_s, job.number)


def may_be_stopped(job: Job) -> bool:
    """Whether a job can be stopped, and goes on later: the script of a trial or a gang is not asked to."""
    return job.spec.movable and not job.spec.sweep and len(job.lanes) == 1 and job.usage.done > 0


class Parting:
    """Choice of the jobs that leave, and of their ways.

    ::

        lane 0   S A S A A S        lane 0   S   S     S       1. another lane of the device has room: A moves there
        lane 1   B B B B B B   ──►  lane 1   B A B A B A
                                                               2. host memory is free: A is parked until S has ended
                                                               3. A is movable: it stops, and begins again elsewhere

    A job for which there is no such way stays. The target goes on being missed then, which the run tells at its end. So
    does a service that is too slow alone: no job of its lane has iterations that are too long.
    """

    def __init__(self, lane_index: LaneIndex, fit: MemoryFit, host: HostMemory | None, moves: JobMoves | None) -> None:
        """Parting in the lanes of an index.

        Args:
            lane_index: Index of the lanes.
            fit: Memory fit of jobs and lanes.
            host: Host memory for parked jobs; None if no job is parked.
            moves: Moves between the lanes of a device; None if no job moves.
        """
        self._lane_index, self._fit, self._host, self._moves = lane_index, fit, host, moves

    def of(self, service: Job) -> Iterator[Step]:
        """Steps that take all jobs away that a service cannot share its lane with, and that have a way."""
        mates = [job for lane in service.lanes for job in lane.jobs.values() if job is not service]
        for job in mates:
            found = clash(service, job)
            if job.state is JobState.RUNNING and found is not None and found.service is service:
                yield from self._leave(job, service, clash_words(found))

    def _leave(self, job: Job, service: Job, why: str) -> Iterator[Step]:
        to = self._lane_beside(job)
        if to is not None and self._moves is not None:
            yield self._moves.begin(job, to)
        elif self._host is not None and not service.spec.is_open_ended and self._host.may_park(job):
            yield Park(job, None, why)  # it is resumed in this lane only, after the service
        elif may_be_stopped(job) and not self._fit.latency.never(job):
            yield GiveWay([job], None, why)

    def _lane_beside(self, job: Job) -> Lane | None:
        """Lane of the same device to which a job may move; the one with the fewest jobs, None if there is none."""
        if self._moves is None or not self._moves.may_move(job):
            return None
        device = job.lanes[0].device
        free_bytes = self._fit.capacity(device) - self._fit.needed_bytes(device.name)
        lanes = [
            lane
            for lane in self._lane_index.devices[device.name]
            if lane is not job.lanes[0]
            and lane.has_place
            and job.demand.ephemeral_bytes <= free_bytes
            and self._fit.latency.admits(job, [*lane.jobs.values(), *lane.coming.values()])
        ]
        return min(lanes, key=lambda lane: (len(lane.jobs), lane.number), default=None)
