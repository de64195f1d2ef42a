"""Memory fit: whether a job fits into a lane, and how much memory it is granted there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from operator import attrgetter

from ecoshare.common.plural import counted
from ecoshare.core.memory import cap_bytes
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState
from ecoshare.values.class_profile import MemoryDemand

SPARE = 1.5
"""Memory granted / largest memory seen of the job, its class or its script: jobs of one class differ in size."""

UNSEEN_BYTES = 512 << 20
"""Memory granted to a job of an unseen class and script if memory is watched: enough for torch and a small model."""


class MemoryFit:
    """Safety condition, with the present knowledge of each job's memory.

    A job is granted the first of these that is known:

    1. the demand that was measured for its class, in this run or before;
    2. `SPARE` times the largest memory that its class was seen to take, or else its script;
    3. an equal share of its lane, or `UNSEEN_BYTES` if memory is watched (on processors).

    If memory is watched, 2 and 3 are at least `SPARE` times the memory that the job itself was seen to take. A gang,
    and a job that needs a whole lane after it ran out of memory, is granted the whole budget of its lanes. No other job
    is granted less than its `least_bytes` or more than the budget of its lane.
    """

    def __init__(self, lane_index: LaneIndex, profiling: Profiling, shares_memory: bool = False) -> None:
        """Memory fit without knowledge beyond the specifications of the jobs.

        Args:
            lane_index: Index of the lanes.
            profiling: Profiling windows, with the demands measured in this run.
            shares_memory: Whether the lanes of a device share its memory, each as much as its jobs need.
        """
        self._lane_index, self._profiling, self._shares_memory = lane_index, profiling, shares_memory
        self._shown_bytes: dict[str, int] = {}  # largest peak, by class
        self._family_bytes: dict[str, int] = {}  # largest peak, by script
        self._suspects: set[str] = set()

    def took(self, job: Job, peak_bytes: int) -> None:
        """Note the peak of a job that ran to its end. Jobs of its class and script are granted more than that."""
        name = job.spec.job_class
        self._shown_bytes[name] = max(peak_bytes, self._shown_bytes.get(name, 0))
        self._saw(job, peak_bytes)

    def grew(self, job: Job) -> bool:
        """Note that a job takes more memory than before. Returns whether its grant has grown."""
        if self._measured(job) is not None or not job.lanes or not job.lanes[0].device.memory_is_watched:
            return False
        self._saw(job, job.usage.peak_bytes)
        before = job.demand
        job.demand = self.demand(job, job.lanes[0])
        return job.demand.peak_bytes > before.peak_bytes

    def suspects(self, job: Job) -> None:
        """Note that a job is a suspect: until its end it runs only when no other job does."""
        self._suspects.add(job.spec.name)

    def ended(self, job: Job) -> None:
        """Note the end of a job."""
        self._suspects.discard(job.spec.name)

    def apart(self, job: Job) -> list[Job]:
        """Jobs with a place beside which this job may not run: suspects, or all jobs if it is a suspect itself."""
        if not self._suspects:
            return []
        others = [each for lane in self._lane_index.lanes.values() for each in lane.jobs.values() if each is not job]
        return others if job.is_suspect else [each for each in others if each.is_suspect]

    def _saw(self, job: Job, peak_bytes: int) -> None:
        if (family := _family(job)) and peak_bytes > self._family_bytes.get(family, 0):
            self._family_bytes[family] = peak_bytes

    def outgrown(self, lane: Lane) -> Job | None:
        """Job that must give way because the jobs that share the memory of a lane have outgrown it.

        The loser is the job of an unmeasured class that has held its turn for the shortest time. The result is None if
        the memory suffices, or if the job is alone: its memory limit ends it then.
        """
        jobs = [job for job in self._beside(lane) if job.state is not JobState.STOPPING]
        if len(jobs) < 2 or self._sum_bytes(lane, (job.demand for job in jobs)) <= lane.budget_bytes:
            return None
        guesses = [job for job in jobs if self._measured(job) is None and len(job.lanes) == 1]
        return min(guesses, key=lambda job: (job.usage.held_s, -job.number), default=None)

    def fits(self, job: Job, lane: Lane) -> bool:
        """Whether the job may be started in the lane now.

        A gang has its lanes to itself: its ranks must have their turns together, or their collectives would wait for
        each other. A suspect runs when no other job does, so that it is known whether it causes the deaths.
        """
        if self.apart(job):
            return False
        if self._profiling.occupies(lane) or any(len(other.lanes) > 1 for other in lane.jobs.values()):
            return False
        return lane.takes(self.demand(job, lane)) and (not self._shares_memory or self.joins(lane.device.name, [job]))

    def joins(self, device: str, newcomers: Iterable[Job]) -> bool:
        """Whether a device has memory for the newcomers beside its present jobs, in any of its lanes.

        The condition is that of `memory.lane_fits` for all lanes together: all P, and the largest T, one for each lane.
        """
        lane = self._lane_index.devices[device][0]
        demands = [*(job.demand for job in self._beside(lane)), *(self.demand(job, lane) for job in newcomers)]
        return self._sum_bytes(lane, demands) <= lane.device.memory_bytes

    def joining(self, device: str, newcomers: Iterable[Job]) -> list[Job]:
        """Newcomers for which `joins` holds, each taken alone. Jobs of equal needs are looked at once."""
        lane = self._lane_index.devices[device][0]
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
        """Jobs that share the memory of a lane: the jobs in it, or on its device if lanes share memory."""
        for each in self._sharing(lane):
            yield from each.jobs.values()

    def _sharing(self, lane: Lane) -> list[Lane]:
        return self._lane_index.devices[lane.device.name] if self._shares_memory else [lane]

    def _sum_bytes(self, lane: Lane, demands: Iterable[MemoryDemand]) -> int:
        """Memory for these demands: all P, and the largest T, one for each lane that shares the memory."""
        several = list(demands)
        ephemeral = nlargest(len(self._sharing(lane)), (each.ephemeral_bytes for each in several))
        return sum(each.persistent_bytes for each in several) + sum(ephemeral)

    def granted(self, job: Job, lane: Lane) -> MemoryDemand:
        """Memory that a job is granted when it starts in the lane. On a GPU, its allocator is limited to that.

        If lanes share memory, an unseen job on a GPU that is about to be measured gets all free memory until then,
        because too little would end it.
        """
        demand = self.demand(job, lane)
        known = self._measured(job) is not None or self._seen_bytes(job) or lane.device.memory_is_watched
        if not self._shares_memory or not self._profiling.will(job) or known:
            return demand
        return MemoryDemand(max(demand.peak_bytes, self._free_bytes(job, lane)))

    def _free_bytes(self, job: Job, lane: Lane) -> int:
        """Memory that the other jobs leave of the memory that a job would share."""
        return lane.budget_bytes - self._sum_bytes(
            lane, (each.demand for each in self._beside(lane) if each is not job)
        )

    def is_new(self, job: Job) -> bool:
        """Whether the class of a job is unknown and will be measured as soon as the job is warm.

        If one job of a class ran to its end without a measurement, the others are taken to be too short for it, too.
        """
        if job.spec.job_class in self._shown_bytes or not self._profiling.will(job):
            return False
        return not self._profiling.too_short(job, job.told_s)

    def never(self, job: Job) -> str | None:
        """Reason in words why the job could not start even if no other job ran; None if it could."""
        in_node, devices, largest_bytes = self._lane_index.limits()
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
        """Take back memory that a job was granted before its demand was known. Returns whether the grant changed."""
        before = job.demand
        job.least_bytes = max(job.least_bytes, job.usage.peak_bytes)
        job.demand = self.demand(job, job.lanes[0])
        return job.demand != before

    def demand(self, job: Job, lane: Lane) -> MemoryDemand:
        """Memory that the job must be granted in the lane: see the class."""
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
        """Key of everything but the lane that decides whether a job fits. Waiting jobs with equal keys fit alike."""
        shown_bytes = self._shown_bytes.get(job.spec.job_class)
        needs = (job.spec.gpus, job.is_suspect, job.whole_lane, job.least_bytes, job.usage.peak_bytes)
        return (*needs, self._measured(job), shown_bytes, _family(job))

    def _seen_bytes(self, job: Job) -> int:
        """Largest peak of the job's class, else of its script; 0 if none was seen."""
        return self._shown_bytes.get(job.spec.job_class) or self._family_bytes.get(_family(job), 0)

    def fuses(self, job: Job) -> bool:
        """Whether the present attempt shares a process: the first attempt of a job that may, once its memory is known.

        In a shared process, the memory of a single job cannot be measured. Later attempts do not share, because the job
        had to leave the process or died with it.
        """
        known = self._measured(job) is not None or job.spec.job_class in self._shown_bytes
        return job.spec.fused and job.attempt == 1 and known

    def cap(self, job: Job, lanes: tuple[Lane, ...]) -> int:
        """Memory limit (bytes) of a job that starts with its demand.

        If memory is watched and the class was not measured, the limit is all free memory.
        """
        lane = min(lanes, key=attrgetter("budget_bytes"))
        if job.demand == self._measured(job):
            return cap_bytes(job.demand, lane.budget_bytes)
        if not lane.device.memory_is_watched:
            return job.demand.peak_bytes
        # One byte below the budget: a job with the whole budget as its limit is not tried again when it runs out of
        # memory.
        return max(job.demand.peak_bytes, min(self._free_bytes(job, lane), lane.budget_bytes - 1))

    def largest_bytes(self) -> int:
        """Size (bytes) of the largest lane that is not closed."""
        return self._lane_index.limits()[2]

    def _measured(self, job: Job) -> MemoryDemand | None:
        return self._profiling.memory.get(job.spec.job_class) or job.spec.memory


def _needs(job: Job) -> tuple[object, ...]:
    """Key of everything in a job that its demand depends on."""
    spec, seen = job.spec, job.usage.peak_bytes
    return (spec.job_class, _family(job), spec.memory, spec.gpus, job.whole_lane, job.least_bytes, seen)


def _family(job: Job) -> str:
    return job.spec.solo.family if job.spec.solo is not None else ""
