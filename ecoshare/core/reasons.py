"""Reasons why a job waits, shares its device or has it to itself, read from a scheduler at one moment.

::

    core.handle(event)        an event
    Reasons(core.view, event.at_s).of(job)
        waits    because  a job is measured │ no place │ memory │ a limit │ a worse group │ jobs before it
        behind   because  a limit │ a worse group              (compared with the group of its device)
        alone    because  a limit │ a worse group │ memory     (for the best neighbour), or no other job
        blocked           by the job that keeps its lane
        shares            neighbours, and the expected speed of each job

Each answer comes from the scheduler's own parts, so it names what the decision was made from. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import Protocol

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.placement.job_groups import MOST_NEW, Candidate, JobGroup
from ecoshare.core.placement.limits import Clash
from ecoshare.core.placement.packer import MEMBER, SEARCH_WIDTH, Packer, packing_class
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.scheduler import SchedulerView


class ReasonKind(Enum):
    """Kind of reason why a job does not run, or has no neighbour.

    The members are sorted: with a later kind, the job is nearer to running. `Reasons` names the latest kind.
    """

    OPENING = "opening"
    SUSPECT = "suspect"
    """The job or a running one is a suspect, which runs alone: it died twice with a process that other jobs need."""
    DEVICES = "devices"
    """The job needs more empty devices than there are."""
    GANG = "gang"
    """A gang has the device to itself."""
    WINDOW = "window"
    """A job is measured alone on the device."""
    TRIAL = "trial"
    """A setting is measured with the jobs that run on the device, so no job may come or go."""
    PLACES = "places"
    FULL = "full"
    """The group, with all jobs that must run, would have more members than the device has lanes."""
    MEMORY = "memory"
    LATENCY = "latency"
    """A service could not keep its target in a lane with the job."""
    ORDER = "order"
    """Other jobs are before it in the order of the policy."""
    LIMIT = "limit"
    """A job would be slower than its slowdown limit allows."""
    NEW = "new"
    """The group already has `MOST_NEW` jobs of unknown classes."""
    BUSY = "busy"
    """A class is measured first: beside the job, there would be too few processors for it to get warm."""
    UNTRIED = "untried"
    """The group may cost less, but trying it is expected to cost more than it can save in the work that is left."""
    WORSE = "worse"
    """The same work would cost more, or not clearly less."""
    CHOSEN = "chosen"
    """The job is chosen, and starts as soon as there is a place for it."""
    NO_OTHER_JOB = "no other job"
    """There is no other job."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation why a job is not in a group, or does not run.

    Attributes:
        why: Kind of the reason.
        jobs: Jobs that the reason is about: those that are measured, are before the job, or would be its neighbours.
        speeds: Expected relative speeds of the job and of `jobs`, co-located: rate together / rate alone.
        least: Least relative speed that each of them must keep; 0 for no limit.
        instead: Group that was chosen.
        excess: Cost of the best group with the job / cost of the chosen group for the same work, minus 1.
        needs_bytes: Memory that the job would take.
        free_bytes: Memory that is free.
        needs: Number of devices that the job needs.
        free: Number of empty devices.
        ahead: Number of jobs before it.
        longest_s: Longest iteration or answer (s) of the second of `jobs`, beside which the first, a service, is late.
        takes_s: Time (s) from the arrival of a request to its answer, in the worst case.
        target_s: Target (s) of the service.
    """

    why: ReasonKind
    jobs: tuple[str, ...] = ()
    speeds: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    instead: tuple[str, ...] = ()
    excess: float | None = None
    needs_bytes: int | None = None
    free_bytes: int | None = None
    needs: int | None = None
    free: int | None = None
    ahead: int | None = None
    longest_s: float | None = None
    takes_s: float | None = None
    target_s: float | None = None


class GroupChoice:
    """Group that a packer would choose for a device now, and the cost of other groups.

    Attributes:
        searched: First jobs of the queue that need one device: the part that the packer searches.
        candidates: Jobs on the device, and jobs of `searched` for which it has memory.
        group: Chosen group; None without candidates.
        members: Jobs of the chosen group; empty without candidates.
    """

    def __init__(self, view: SchedulerView, packer: Packer, device: str, at_s: float) -> None:
        self._view, self._packer, self._device, self._at_s = view, packer, device, at_s
        self.searched = [job for job in islice(view.placement.waiting, SEARCH_WIDTH) if job.spec.gpus == 1]
        here = packer.here(device)
        self.candidates = [*here, *view.fit.joining(device, self.searched)]
        found = packer.choose(self.candidates, device, at_s) if self.candidates else None
        self._found: dict[tuple[object, ...], Explanation] = {}
        self.group: JobGroup | None = None
        self.members: list[Job] = []
        if found is not None:
            self.group, self.members = found

    @cached_property
    def _by_job(self) -> dict[Job, Candidate]:
        return {job: self._packer.candidate(job, self._at_s) for job in self.candidates}

    @cached_property
    def _by_number(self) -> dict[int, Job]:
        return {job.number: job for job in self.candidates}

    @cached_property
    def _ordered(self) -> list[Job]:
        return self._packer.in_order(self.candidates, self._device, self._at_s)

    def forecast(self, jobs: Iterable[Job]) -> ColocationForecast:
        """Forecast for these jobs, co-located."""
        return self._packer.outlook.forecast([job.spec.job_class for job in jobs])

    def against(self, job: Job) -> Explanation:
        """Explanation why a candidate is not in the group, by the best group with it and with all that must run.

        Waiting jobs that are alike share one answer.
        """
        key = (*packing_class(job), *self._of(job).alike)
        found = self._found.get(key)
        if found is None or job.state is not JobState.QUEUED or job.spec.name in (*found.jobs, *found.instead):
            found = self._found[key] = self._against(job)
        return found

    def _against(self, job: Job) -> Explanation:
        first = self._ordered[0]  # it waits, too, if it may not run beside the jobs that must
        must = [each for each in self._ordered if self._of(each).must]
        base = [*dict.fromkeys([*([first] if first in self.members else []), *must, job])]
        if len(base) > self._packer.largest:
            return Explanation(ReasonKind.FULL, names(each for each in base if each is not job))
        forced = self._group(base)
        if not forced.keeps_limits and len(base) > 1:
            return self._worse(ReasonKind.LIMIT, job, forced)
        if not self._fits(forced.members):
            others = [each for each in base if each is not job]
            return replace(self._short_of(base), jobs=names(others))
        new = [each for each in self.members if self._of(each).is_new]
        if self._of(job).is_new and job not in new and len(new) >= MOST_NEW:
            return Explanation(ReasonKind.NEW, names(new))
        if not forced.tries_few:
            return Explanation(ReasonKind.BUSY, names(each for each in base if each is not job))
        wanted = [_with_must(self._of(each), each in base) for each in self._ordered]
        best = self._packer.grouping.best(wanted, self._fits) or forced
        return self._worse(self._why_worse(best), job, best)

    def why_alone(self, job: Job) -> Explanation | None:
        """Explanation why a job has no neighbour, by the best other candidate; None if there is no other candidate."""
        mates = {each.spec.job_class: each for each in reversed(self.candidates) if each is not job}
        if not mates:
            return None
        groups = [self._group([job, each]) for each in mates.values()]
        kept = [each for each in groups if each.keeps_limits] or groups
        best = min(kept, key=lambda each: each.cost)
        if not best.tries_few:
            return Explanation(ReasonKind.BUSY, names(map(self._job, best.members[1:])))
        alone = self._group([job])
        return self._worse(self._why_worse(best, alone) if best.keeps_limits else ReasonKind.LIMIT, job, best, alone)

    def _why_worse(self, group: JobGroup, chosen: JobGroup | None = None) -> ReasonKind:
        """Whether a group costs too much, or only its trial does."""
        chosen = chosen or self.group
        assert chosen is not None, "a group was chosen"
        is_untried = group.beats(chosen) and not self._packer.grouping.pays(group, chosen)
        return ReasonKind.UNTRIED if is_untried else ReasonKind.WORSE

    def _worse(self, why: ReasonKind, job: Job, group: JobGroup, chosen: JobGroup | None = None) -> Explanation:
        """Explanation that compares a group with the job with the chosen group."""
        chosen = chosen or self.group
        assert chosen is not None, "a group was chosen"
        number, excess = job.number, group.cost / chosen.cost - 1.0
        places = sorted(range(len(group.members)), key=lambda place: group.members[place].number != number)
        members = [self._job(group.members[place]) for place in places]
        return Explanation(
            why,
            names(members[1:]),
            tuple(group.forecast.speeds[place] for place in places),
            tuple(group.members[place].least for place in places),
            names(map(self._job, chosen.members)),
            excess if isfinite(excess) else None,  # work that is worth nothing has no cost
        )

    def _short_of(self, jobs: Sequence[Job]) -> Explanation:
        """Explanation by the memory of all waiting jobs in `jobs` together."""
        lanes = self._view.lane_index.devices[self._device]
        new = [self._view.fit.demand(job, lanes[0]) for job in jobs if job.state is JobState.QUEUED]
        more = [*demands(lanes), *new[:-1]]
        capacity = self._view.fit.capacity(lanes[0].device)
        return short(new[-1], more, len(lanes), capacity) if new else Explanation(ReasonKind.MEMORY)

    def _group(self, jobs: Sequence[Job]) -> JobGroup:
        return self._packer.grouping.of([self._of(job) for job in jobs])

    def _fits(self, members: Sequence[Candidate]) -> bool:
        newcomers = [job for each in members if (job := self._job(each)).state is JobState.QUEUED]
        return self._view.fit.joins(self._device, newcomers)

    def _of(self, job: Job) -> Candidate:
        return self._by_job[job]

    def _job(self, candidate: Candidate) -> Job:
        return self._by_number[candidate.number]


def _with_must(candidate: Candidate, must: bool) -> Candidate:
    """Candidate with this `must`; the same object if nothing changes, because copies are the slowest part here."""
    return candidate if candidate.must == must else candidate._replace(must=must)


def short(demand: MemoryDemand, others: Sequence[MemoryDemand], most: int, memory_bytes: int) -> Explanation:
    """Explanation by memory: how much a job adds, and how much is free.

    The condition is that of `MemoryFit` for jobs that move freely between the lanes of a device.

    Args:
        demand: Memory demand of the job.
        others: Memory demands of the jobs beside it.
        most: Number of ephemeral regions that may be in use at once: one for each lane.
        memory_bytes: Memory of the device for the jobs of the run.
    """
    taken, with_it = _taken_bytes(others, most), _taken_bytes([*others, demand], most)
    return Explanation(ReasonKind.MEMORY, needs_bytes=with_it - taken, free_bytes=max(0, memory_bytes - taken))


def _taken_bytes(demands: Sequence[MemoryDemand], most: int) -> int:
    ephemeral = sorted((each.ephemeral_bytes for each in demands), reverse=True)
    return sum(each.persistent_bytes for each in demands) + sum(ephemeral[:most])


def demands(lanes: Iterable[Lane]) -> list[MemoryDemand]:
    """Memory demands of all jobs that have a place in these lanes."""
    return [job.demand for lane in lanes for job in lane.jobs.values()]


def names(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Names of these jobs."""
    return tuple(job.spec.name for job in jobs)


MOST_NAMED = 3
"""Most jobs that are named as being before another job in the queue."""


_NEARNESS = {why: place for place, why in enumerate(ReasonKind)}


class Doing(Enum):
    """Activity of a job."""

    WAITS = "waits"
    HELD = "held"
    """The user holds the job: it does not wait for a place."""
    STARTS = "starts"
    ALONE = "alone"
    SHARES = "shares"
    BEHIND = "behind"
    """The job runs behind the group of its device: it has the turn while a member of the group is away."""
    BLOCKED = "blocked"
    """Another job keeps the lane of this one to its end."""
    MEASURED = "measured"
    PAUSED = "paused"
    """Another job is measured alone on the device."""
    PARKED = "parked"
    """The job waits for a place with its memory on the host."""
    PARKS = "parks"
    """The job moves its memory to the host."""
    RESUMES = "resumes"
    """The job moves its memory back to its device."""
    STOPS = "stops"


@dataclass(frozen=True, slots=True)
class Reason:
    """Activity of a job at a moment, and the reason for it.

    Attributes:
        doing: Activity.
        device: Device of the job. For a waiting job it is the device on which the job is nearest to running; empty if
            there is none.
        beside: Other members of its group, or the group that it is behind, or the job that is measured or keeps the
            lane. Without groups: jobs in other lanes of the device.
        mates: Other jobs of its lane, with which it takes turns. Only without groups.
        speeds: Expected relative speeds of the job and of `beside`: rate together / rate alone; empty without a
            forecast.
        because: Explanation; None if there is none.
    """

    doing: Doing
    device: str = ""
    beside: tuple[str, ...] = ()
    mates: tuple[str, ...] = ()
    speeds: tuple[float, ...] = ()
    because: Explanation | None = None


class WaitingOrder(Protocol):
    """Waiting jobs in the order of the policy."""

    def first(self, count: int) -> list[Job]:
        """At most `count` jobs from the head of the queue."""
        ...

    def place(self, job: Job) -> int:
        """Number of jobs before `job`."""
        ...


class Reasons:
    """Reasons at one moment. Make a new object for the next moment."""

    def __init__(self, view: SchedulerView, at_s: float, queue: WaitingOrder | None = None) -> None:
        """Reasons at the moment after an event.

        Args:
            view: Parts of the scheduler.
            at_s: Time (s) of the event.
            queue: Waiting jobs, if the caller keeps them in order. Otherwise the order is made when it is needed.
        """
        self._view, self._at_s = view, at_s
        self._queue = queue or _Listed(view.placement.waiting)
        self._choices: dict[str, GroupChoice] = {}
        self._closed: dict[str, Explanation | None] = {}

    def of(self, job: Job) -> Reason | None:
        """Activity of a job and the reason for it; None if the job is paused or has ended."""
        match job.state:
            case JobState.QUEUED:
                return self._waits(job)
            case JobState.HELD:
                return Reason(Doing.HELD)
            case JobState.PARKED:
                return replace(self._waits(job), doing=Doing.PARKED)
            case JobState.STARTING:
                return Reason(Doing.STARTS, job.lanes[0].device.name)
            case JobState.RUNNING:
                return self._runs(job)
            case JobState.PARKING:
                return Reason(Doing.PARKS, job.lanes[0].device.name)
            case JobState.RESUMING:
                return Reason(Doing.RESUMES, job.lanes[0].device.name)
            case JobState.STOPPING:
                return Reason(Doing.STOPS, job.lanes[0].device.name) if job.lanes else None
        return None

    def measured(self, device: str) -> Job | None:
        """Job that is measured alone on a device; None if there is none."""
        if not self._view.profiling.occupies(self._view.lane_index.devices[device][0]):
            return None
        windows = self._view.profiling.windows.values()
        return next(job for job in windows if any(lane.device.name == device for lane in job.lanes))

    # Waiting jobs

    def _waits(self, job: Job) -> Reason:
        if self._view.opening:
            return Reason(Doing.WAITS, because=Explanation(ReasonKind.OPENING))
        if apart := self._view.fit.apart(job):
            return Reason(Doing.WAITS, because=Explanation(ReasonKind.SUSPECT, names(apart)))
        if job.spec.has_lanes_alone:
            free = Explanation(ReasonKind.DEVICES, needs=job.spec.gpus, free=self._view.lane_index.free)
            enough = job.spec.gpus <= self._view.lane_index.free
            return Reason(Doing.WAITS, because=self._behind_others(job) if enough else free)
        found = [(device, self._why_not(job, device)) for device in self._view.lane_index.devices]
        nearest = sorted(found, key=lambda each: _NEARNESS[each[1].why], reverse=True)
        device, because = nearest[min(job.spec.gpus, len(nearest)) - 1]  # the last device that a gang still lacks
        return Reason(Doing.WAITS, device, because=because)

    def _why_not(self, job: Job, device: str) -> Explanation:
        """Explanation why a job of one device does not start on `device` now."""
        if device not in self._closed:
            self._closed[device] = self._why_closed(device)
        if (closed := self._closed[device]) is not None:
            return closed
        groups, lanes = self._view.placement.groups, self._view.lane_index.devices[device]
        if groups is not None:
            return self._no_member(job, device, groups)
        if not any(self._view.fit.fits(job, lane) for lane in lanes):
            found = next(self._view.fit.latency.clashes(job, lanes), None)
            return self._memory(job, lanes) if found is None else _latency(found)
        return self._behind_others(job)

    def _why_closed(self, device: str) -> Explanation | None:
        """Explanation why no job of one device starts on `device` now; None if one may."""
        lanes = self._view.lane_index.devices[device]
        here = [each for lane in lanes for each in lane.jobs.values()]
        if (window := self.measured(device)) is not None:
            return Explanation(ReasonKind.WINDOW, (window.spec.name,))
        if any(each.spec.has_lanes_alone for each in here):
            return Explanation(ReasonKind.GANG, names(here))
        groups = self._view.placement.groups
        if groups is not None and self._view.settings.is_measuring(device):
            return Explanation(ReasonKind.TRIAL, names(groups.present(lanes)))
        if not any(lane.has_place for lane in lanes):
            return Explanation(ReasonKind.PLACES, names(here))
        return None

    def _behind_others(self, job: Job) -> Explanation:
        """Explanation with the jobs that are before `job` in the queue."""
        place = self._queue.place(job)
        return Explanation(ReasonKind.ORDER, names(self._queue.first(min(place, MOST_NAMED))), ahead=place)

    def _no_member(self, job: Job, device: str, groups: Packer) -> Explanation:
        """Explanation why a waiting job does not belong to the best group of a device."""
        choice = self._choice(device, groups)
        if job not in choice.searched:
            return self._behind_others(job)
        if job not in choice.candidates:
            lanes, latency = self._view.lane_index.devices[device], self._view.fit.latency
            found = None if latency.has_lane(job, lanes) else next(latency.clashes(job, lanes), None)
            return self._memory(job, lanes) if found is None else _latency(found)
        if choice.group is None or job in choice.members:
            return Explanation(ReasonKind.CHOSEN)
        return choice.against(job)

    def _memory(self, job: Job, lanes: Sequence[Lane]) -> Explanation:
        """Memory that the job would take in the lane that it fits best, and the free memory of the device."""
        fit, device = self._view.fit, lanes[0].device
        taken_bytes = fit.needed_bytes(device.name)
        with_place = [lane for lane in lanes if lane.has_place] or lanes
        with_it = (fit.needed_bytes(device.name, {lane.number: [fit.demand(job, lane)]}) for lane in with_place)
        free_bytes = max(0, fit.capacity(device) - taken_bytes)
        return Explanation(ReasonKind.MEMORY, needs_bytes=min(with_it) - taken_bytes, free_bytes=free_bytes)

    # Running jobs

    def _runs(self, job: Job) -> Reason:
        device = job.lanes[0].device.name
        lanes = self._view.lane_index.devices[device]
        if (window := self.measured(device)) is not None:
            if window is job:
                return Reason(Doing.MEASURED, device)
            return Reason(Doing.PAUSED, device, (window.spec.name,))
        if not job.usage.keeps_lane and (keepers := _keepers(job)):
            return Reason(Doing.BLOCKED, device, names(keepers))
        groups = self._view.placement.groups
        if groups is None or job.spec.gpus > 1:
            return _in_turn(job, device, lanes)
        return self._grouped(job, device, groups)

    def _grouped(self, job: Job, device: str, groups: Packer) -> Reason:
        lanes = self._view.lane_index.devices[device]
        group = groups.present(lanes)
        choice = self._choice(device, groups)
        others = [each for each in group if each is not job]
        if job.level != MEMBER:
            because = choice.against(job) if job not in choice.members and choice.group is not None else None
            return Reason(Doing.BEHIND, device, names(others), because=because)
        if others:
            return Reason(Doing.SHARES, device, names(others), speeds=choice.forecast([job, *others]).speeds)
        held = Explanation(ReasonKind.TRIAL, (job.spec.name,)) if self._view.settings.is_measuring(device) else None
        return Reason(Doing.ALONE, device, because=held or choice.why_alone(job) or self._no_mate(device, choice))

    def _no_mate(self, device: str, choice: GroupChoice) -> Explanation:
        """Explanation why a lone job gets no neighbour: the first waiting job lacks memory, or no job waits."""
        lanes = self._view.lane_index.devices[device]
        waiting = [job for job in choice.searched if job not in choice.candidates]
        if not waiting:
            return Explanation(ReasonKind.NO_OTHER_JOB)
        return replace(self._memory(waiting[0], lanes), jobs=names(waiting[:1]))

    def _choice(self, device: str, groups: Packer) -> GroupChoice:
        if device not in self._choices:
            self._choices[device] = GroupChoice(self._view, groups, device, self._at_s)
        return self._choices[device]


class _Listed:
    """A queue at one moment."""

    def __init__(self, waiting: Iterable[Job]) -> None:
        self._waiting = waiting

    @cached_property
    def _places(self) -> dict[Job, int]:
        return {job: place for place, job in enumerate(self._waiting)}

    def first(self, count: int) -> list[Job]:
        return list(islice(self._places, count))

    def place(self, job: Job) -> int:
        return self._places[job]


def _latency(found: Clash) -> Explanation:
    """Explanation why a job does not share a lane: the service and the other job."""
    return Explanation(
        ReasonKind.LATENCY,
        names([found.service, found.other]),
        longest_s=found.turn_s,
        takes_s=found.takes_s,
        target_s=found.target_s,
    )


def _keepers(job: Job) -> list[Job]:
    """Jobs that keep a lane of a job to their ends."""
    return [each for lane in job.lanes for each in lane.jobs.values() if each.usage.keeps_lane]


def _in_turn(job: Job, device: str, lanes: Sequence[Lane]) -> Reason:
    """Reason for a gang, or under a policy without groups: the jobs of its lanes, and the jobs in other lanes."""
    mates = [each for lane in job.lanes for each in lane.jobs.values() if each is not job]
    beside = [each for lane in lanes if lane not in job.lanes for each in lane.jobs.values()]
    doing = Doing.SHARES if mates or beside else Doing.ALONE
    return Reason(doing, device, names(beside), names(mates))
