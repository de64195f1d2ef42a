"""Whether a job fits into a lane, and how much memory it is granted there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from operator import attrgetter

from ecoshare.common.plural import counted
from ecoshare.core.memory import MemoryDemand, cap_bytes
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState

SPARE = 1.5
"""Granted over what a job, another one of its class, or one of its script was seen to take: they differ in size."""

UNSEEN_BYTES = 512 << 20
"""Granted to a job of which nothing was seen yet, where memory is watched: torch and a small model."""


class MemoryFit:
    """The safety condition, with what is known of each job's memory by now.

    A job is granted, in this order: what was measured of its class; `SPARE` times what its class, or else its script,
    was seen to take. Of a job without any of these nothing is known: where memory is watched (on processors), it is
    granted `SPARE` times what it takes by now, and elsewhere an equal share of its lane.
    """

    def __init__(self, room: LaneIndex, profiling: Profiling, elastic: bool = False) -> None:
        """Nothing is known beyond what the jobs say.

        Args:
            elastic: Whether the lanes of a device share its memory, each as much as its jobs need.
        """
        self._room, self._profiling, self._elastic = room, profiling, elastic
        self._shown_bytes: dict[str, int] = {}  # by class
        self._family_bytes: dict[str, int] = {}  # by script
        self._suspects: set[str] = set()

    def took(self, job: Job, peak_bytes: int) -> None:
        """A job has run to its end with this peak: others of its class and script are granted more than that."""
        name = job.spec.job_class
        self._shown_bytes[name] = max(peak_bytes, self._shown_bytes.get(name, 0))
        self._saw(job, peak_bytes)

    def grew(self, job: Job) -> bool:
        """A job was told to have more memory than before; whether that changes what it is granted."""
        if self._measured(job) is not None or not job.lanes or not job.lanes[0].device.memory_is_watched:
            return False
        self._saw(job, job.usage.peak_bytes)
        before = job.demand
        job.demand = self.demand(job, job.lanes[0])
        return job.demand.peak_bytes > before.peak_bytes

    def suspects(self, job: Job) -> None:
        """From now on until its end a job runs when no other one does."""
        self._suspects.add(job.spec.name)

    def ended(self, job: Job) -> None:
        """A job is over."""
        self._suspects.discard(job.spec.name)

    def apart(self, job: Job) -> list[Job]:
        """Jobs that have a place, and beside which this one may not run: a suspect, or all where it is one itself."""
        if not self._suspects:
            return []
        others = [each for lane in self._room.lanes.values() for each in lane.jobs.values() if each is not job]
        return others if job.is_suspect else [each for each in others if each.is_suspect]

    def _saw(self, job: Job, peak_bytes: int) -> None:
        if (family := _family(job)) and peak_bytes > self._family_bytes.get(family, 0):
            self._family_bytes[family] = peak_bytes

    def outgrown(self, lane: Lane) -> Job | None:
        """The job that must give way where the jobs of a lane (elastic: of its device) have outgrown its memory.

        Of those whose class was not measured it is the one that has done least; None where all is well, or one is
        alone: its cap ends that one.
        """
        jobs = [job for job in self._beside(lane) if job.state is not JobState.STOPPING]
        if len(jobs) < 2 or self._sum_bytes(lane, (job.demand for job in jobs)) <= lane.budget_bytes:
            return None
        guesses = [job for job in jobs if self._measured(job) is None and len(job.lanes) == 1]
        return min(guesses, key=lambda job: (job.usage.held_s, -job.number), default=None)

    def fits(self, job: Job, lane: Lane) -> bool:
        """Whether the job may be started there now.

        A gang holds its lanes whole: its members must have their turns together, or their collectives would wait for
        each other. A suspect runs when no other job does, so that it is known whether it is the one.
        """
        if self.apart(job):
            return False
        if self._profiling.occupies(lane) or any(len(other.lanes) > 1 for other in lane.jobs.values()):
            return False
        return lane.takes(self.demand(job, lane)) and (not self._elastic or self.joins(lane.device.name, [job]))

    def joins(self, device: str, newcomers: Iterable[Job]) -> bool:
        """Whether a device has memory for these beside those that are there, in whichever of its lanes they are.

        The condition of a lane (`memory.lane_fits`) summed over its lanes, with the largest T that could meet.
        """
        lane = self._room.devices[device][0]
        demands = [*(job.demand for job in self._beside(lane)), *(self.demand(job, lane) for job in newcomers)]
        return self._sum_bytes(lane, demands) <= lane.device.memory_bytes

    def joining(self, device: str, newcomers: Iterable[Job]) -> list[Job]:
        """Those of some newcomers for each of which alone `joins` holds; jobs of equal needs are looked at once."""
        lane = self._room.devices[device][0]
        here = [job.demand for job in self._beside(lane)]
        joins: dict[tuple[object, ...], bool] = {}
        found = []
        for job in newcomers:
            needs = _needs(job)
            joined = joins.get(needs)
            if joined is None:
                demands = [*here, self.demand(job, lane)]
                joined = joins[needs] = self._sum_bytes(lane, demands) <= lane.device.memory_bytes
            if joined:
                found.append(job)
        return found

    def _beside(self, lane: Lane) -> Iterator[Job]:
        """Jobs that share the memory of a lane: those in it, or on its device where lanes are elastic."""
        for each in self._sharing(lane):
            yield from each.jobs.values()

    def _sharing(self, lane: Lane) -> list[Lane]:
        return self._room.devices[lane.device.name] if self._elastic else [lane]

    def _sum_bytes(self, lane: Lane, demands: Iterable[MemoryDemand]) -> int:
        """All P, and the largest T that could meet: one for each lane that shares the memory."""
        several = list(demands)
        ephemeral = nlargest(len(self._sharing(lane)), (each.ephemeral_bytes for each in several))
        return sum(each.persistent_bytes for each in several) + sum(ephemeral)

    def granted(self, job: Job, lane: Lane) -> MemoryDemand:
        """What it gets when it is started there.

        On a GPU its allocator is bound to that. There a job of a class that is about to be measured gets all that is
        free until then, if lanes are elastic: too little would end it.
        """
        demand = self.demand(job, lane)
        known = self._measured(job) is not None or self._seen_bytes(job) or lane.device.memory_is_watched
        if not self._elastic or not self._profiling.will(job) or known:
            return demand
        return MemoryDemand(max(demand.peak_bytes, self._free_bytes(job, lane)))

    def _free_bytes(self, job: Job, lane: Lane) -> int:
        """What others have left of the memory that a job would share."""
        return lane.budget_bytes - self._sum_bytes(
            lane, (each.demand for each in self._beside(lane) if each is not job)
        )

    def is_new(self, job: Job) -> bool:
        """Whether its class is not known, and will be measured as soon as the job is warm.

        Where one has run to its end without that, others are too short for it, too.
        """
        if job.spec.job_class in self._shown_bytes or not self._profiling.will(job):
            return False
        return not self._profiling.too_short(job, job.told_s)

    def never(self, job: Job) -> str | None:
        """Why the job could not start even in an empty cluster, or None where it could."""
        in_node, devices, largest_bytes = self._room.limits()
        gpus, nodes = job.spec.gpus, job.spec.nodes
        if nodes is None:
            if gpus > devices:
                return f"needs {counted(gpus, 'device')}, and {devices} can be had"
        elif gpus > in_node * nodes:
            where = "one node" if nodes == 1 else f"{nodes} nodes"
            return f"needs {counted(gpus, 'device')} of {where}, and {in_node * nodes} can be had"
        if job.spec.memory is not None and job.spec.memory.peak_bytes > largest_bytes:
            return f"needs {job.spec.memory.peak_bytes} bytes, and the largest lane has {largest_bytes}"
        return None

    def give_back(self, job: Job) -> bool:
        """What a job was granted until it was known, and does not need; whether that is anything."""
        before = job.demand
        job.least_bytes = max(job.least_bytes, job.usage.peak_bytes)
        job.demand = self.demand(job, job.lanes[0])
        return job.demand != before

    def demand(self, job: Job, lane: Lane) -> MemoryDemand:
        """What the job must be granted there: see the class."""
        if job.whole_lane or job.spec.gpus > 1:
            return MemoryDemand(lane.budget_bytes)
        otherwise = int(SPARE * self._seen_bytes(job))
        if lane.device.memory_is_watched:
            otherwise = max(otherwise or UNSEEN_BYTES, int(SPARE * job.usage.peak_bytes))
        demand = self._measured(job) or MemoryDemand(otherwise or lane.budget_bytes // lane.places)
        if demand.peak_bytes < job.least_bytes:
            demand = MemoryDemand(job.least_bytes)
        return demand if demand.peak_bytes <= lane.budget_bytes else MemoryDemand(lane.budget_bytes)

    def known(self, job: Job) -> tuple[object, ...]:
        """All that its place depends on, beside the lane: jobs that wait and have this in common fit alike."""
        shown_bytes = self._shown_bytes.get(job.spec.job_class)
        needs = (job.spec.gpus, job.is_suspect, job.whole_lane, job.least_bytes, job.usage.peak_bytes)
        return (*needs, self._measured(job), shown_bytes, _family(job))

    def _seen_bytes(self, job: Job) -> int:
        """The largest peak of its class, else of its script; 0 where none was seen."""
        return self._shown_bytes.get(job.spec.job_class) or self._family_bytes.get(_family(job), 0)

    def fuses(self, job: Job) -> bool:
        """Whether an attempt shares its process: the first one of a job that may, once it is known what it needs.

        In a shared process nobody can tell how much a job has of its own; and one that had to leave it, or died with
        it, is not to do so again.
        """
        known = self._measured(job) is not None or job.spec.job_class in self._shown_bytes
        return job.spec.fused and job.attempt == 1 and known

    def cap(self, job: Job, lanes: tuple[Lane, ...]) -> int:
        """Most bytes that a job that starts with its demand may rise to.

        Where memory is watched that is all that is free, unless its class was measured: it needs no share of its own.
        """
        lane = min(lanes, key=attrgetter("budget_bytes"))
        if job.demand == self._measured(job):
            return cap_bytes(job.demand, lane.budget_bytes)
        if not lane.device.memory_is_watched:
            return job.demand.peak_bytes
        # All of the memory is the cap of a job that has it to itself alone: such a job is not tried again.
        return max(job.demand.peak_bytes, min(self._free_bytes(job, lane), lane.budget_bytes - 1))

    def largest_bytes(self) -> int:
        """Of any lane that can be had."""
        return self._room.limits()[2]

    def _measured(self, job: Job) -> MemoryDemand | None:
        return self._profiling.memory.get(job.spec.job_class) or job.spec.memory


def _needs(job: Job) -> tuple[object, ...]:
    """All of a job that its demand depends on."""
    spec, seen = job.spec, job.usage.peak_bytes
    return (spec.job_class, _family(job), spec.memory, spec.gpus, job.whole_lane, job.least_bytes, seen)


def _family(job: Job) -> str:
    return job.spec.solo.family if job.spec.solo is not None else ""
