"""The group that a packer would choose for a device at a moment, and why somebody is not in it; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from math import isfinite

from ecoshare.core.memory import MemoryDemand
from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.placement.job_groups import MOST_NEW, Candidate, JobGroup
from ecoshare.core.placement.packer import WINDOW, Packer
from ecoshare.core.records import Job, Lane
from ecoshare.core.scheduler_view import SchedulerView
from ecoshare.core.states import JobState


class ReasonKind(Enum):
    """What keeps a job from running, or others from running beside it; the later, the nearer it was to that."""

    OPENING = "opening"
    SUSPECT = "suspect"
    """It, or one that runs, has died with the others' process twice: such a job runs alone."""
    DEVICES = "devices"
    """It needs more empty devices than there are."""
    GANG = "gang"
    """A job of several devices has this one to itself."""
    WINDOW = "window"
    """Somebody is measured there alone."""
    TRIAL = "trial"
    """Those that run there are measured, so nobody may come or go."""
    PLACES = "places"
    FULL = "full"
    """Its group would have more members than there are lanes: all those that must run do."""
    MEMORY = "memory"
    ORDER = "order"
    """Others are before it by the policy."""
    LIMIT = "limit"
    """Somebody would be slower than its owner allows."""
    NEW = "new"
    """As many jobs of unknown classes as are tried at a time run there."""
    WORSE = "worse"
    """The work would cost more, or not clearly less."""
    CHOSEN = "chosen"
    """Nothing any more: it starts as soon as there is a place for it."""
    NOBODY = "nobody"
    """There is nobody else."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why not.

    Attributes:
        jobs: Who it is about: those that are measured, that are before it, or that it would be beside.
        speeds: Expected of it and of `jobs` beside each other, over those alone.
        least: What each of them must keep at least; 0 for no limit.
        instead: The group that was chosen.
        excess: What the best group with it costs for the same work over the chosen one, less 1.
        needs_bytes: Memory that it would take; `free_bytes`: that there is.
        needs: Devices; `free`: empty ones.
        ahead: How many are before it.
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


class GroupChoice:
    """The group that a packer would choose for a device now, and what others would be worth.

    Attributes:
        window: Those that wait, as far as they are looked at.
        candidates: Those that are there, and those of the others for which there is memory.
        members: Of the group; none where there is nobody.
    """

    def __init__(self, inside: SchedulerView, packer: Packer, device: str, at_s: float) -> None:
        self._inside, self._packer, self._device, self._at_s = inside, packer, device, at_s
        self.window = [job for job in islice(inside.seating.waiting, WINDOW) if job.spec.gpus == 1]
        here = packer.here(device)
        self.candidates = [*here, *inside.fit.joining(device, self.window)]
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
        """What is expected of these beside each other."""
        return self._packer.outlook.forecast([job.spec.job_class for job in jobs])

    def against(self, job: Job) -> Explanation:
        """Why a candidate is not in the group: the best one with it, and with all that must be there.

        Of those that wait and are alike, only one needs to be asked.
        """
        key = (*self._packer.line(job), *self._of(job).alike)
        found = self._found.get(key)
        if found is None or job.state is not JobState.QUEUED or job.spec.name in (*found.jobs, *found.instead):
            found = self._found[key] = self._against(job)
        return found

    def _against(self, job: Job) -> Explanation:
        first = self._ordered[0]  # it waits, too, where it may not be beside those that must go on
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
        wanted = [_with_must(self._of(each), each in base) for each in self._ordered]
        best = self._packer.grouping.best(wanted, self._fits) or forced
        return self._worse(ReasonKind.WORSE, job, best)

    def why_alone(self, job: Job) -> Explanation | None:
        """Why nobody else of the candidates is beside a job: the one that it would go best with; None for none."""
        mates = {each.spec.job_class: each for each in reversed(self.candidates) if each is not job}
        if not mates:
            return None
        groups = [self._group([job, each]) for each in mates.values()]
        kept = [each for each in groups if each.keeps_limits] or groups
        best = min(kept, key=lambda each: each.cost)
        return self._worse(ReasonKind.WORSE if best.keeps_limits else ReasonKind.LIMIT, job, best, self._group([job]))

    def _worse(self, why: ReasonKind, job: Job, group: JobGroup, chosen: JobGroup | None = None) -> Explanation:
        """A group with the job against the one that is chosen."""
        chosen = chosen or self.group
        assert chosen is not None, "somebody is there"
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
        """Memory for all that are not there yet, together."""
        lanes = self._inside.room.devices[self._device]
        new = [self._inside.fit.demand(job, lanes[0]) for job in jobs if job.state is JobState.QUEUED]
        more = [*demands(lanes), *new[:-1]]
        return short(new[-1], more, len(lanes), lanes[0].device.memory_bytes) if new else Explanation(ReasonKind.MEMORY)

    def _group(self, jobs: Sequence[Job]) -> JobGroup:
        return self._packer.grouping.of([self._of(job) for job in jobs])

    def _fits(self, members: Sequence[Candidate]) -> bool:
        newcomers = [job for each in members if (job := self._job(each)).state is JobState.QUEUED]
        return self._inside.fit.joins(self._device, newcomers)

    def _of(self, job: Job) -> Candidate:
        return self._by_job[job]

    def _job(self, candidate: Candidate) -> Job:
        return self._by_number[candidate.number]


def _with_must(candidate: Candidate, must: bool) -> Candidate:
    """The same one, if it needs no other `must`: to make a copy takes longer than all else here."""
    return candidate if candidate.must == must else candidate._replace(must=must)


def short(demand: MemoryDemand, others: Sequence[MemoryDemand], most: int, memory_bytes: int) -> Explanation:
    """The condition of `memory.lane_fits`, or of a device whose lanes share its memory, as what a job adds to it.

    Args:
        most: Largest T that could meet: one a lane.
    """
    taken, with_it = _taken_bytes(others, most), _taken_bytes([*others, demand], most)
    return Explanation(ReasonKind.MEMORY, needs_bytes=with_it - taken, free_bytes=memory_bytes - taken)


def _taken_bytes(demands: Sequence[MemoryDemand], most: int) -> int:
    ephemeral = sorted((each.ephemeral_bytes for each in demands), reverse=True)
    return sum(each.persistent_bytes for each in demands) + sum(ephemeral[:most])


def demands(lanes: Iterable[Lane]) -> list[MemoryDemand]:
    """Of all jobs that have a place there."""
    return [job.demand for lane in lanes for job in lane.jobs.values()]


def names(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Of these jobs."""
    return tuple(job.spec.name for job in jobs)
