"""Group that a packer would choose for a device at one moment, and why a job is not in it. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from math import isfinite

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.placement.job_groups import MOST_NEW, Candidate, JobGroup
from ecoshare.core.placement.packer import SEARCH_WIDTH, Packer, packing_class
from ecoshare.core.records import Job, Lane
from ecoshare.core.scheduler_view import SchedulerView
from ecoshare.core.states import JobState
from ecoshare.values.class_profile import MemoryDemand


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
        return short(new[-1], more, len(lanes), lanes[0].device.memory_bytes) if new else Explanation(ReasonKind.MEMORY)

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
        memory_bytes: Memory of the device.
    """
    taken, with_it = _taken_bytes(others, most), _taken_bytes([*others, demand], most)
    return Explanation(ReasonKind.MEMORY, needs_bytes=with_it - taken, free_bytes=memory_bytes - taken)


def _taken_bytes(demands: Sequence[MemoryDemand], most: int) -> int:
    ephemeral = sorted((each.ephemeral_bytes for each in demands), reverse=True)
    return sum(each.persistent_bytes for each in demands) + sum(ephemeral[:most])


def demands(lanes: Iterable[Lane]) -> list[MemoryDemand]:
    """Memory demands of all jobs that have a place in these lanes."""
    return [job.demand for lane in lanes for job in lane.jobs.values()]


def names(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Names of these jobs."""
    return tuple(job.spec.name for job in jobs)
