"""Whether a job fits into a lane, and how much memory it is granted there."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from ecoshare.core.memory import MemoryDemand, cap_bytes
from ecoshare.core.profiling import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.room import Room

SPARE = 1.5
"""More than any of its class has had, for a job of a class that was not measured: trials of a sweep differ in size."""


class Fit:
    """The safety condition, with what is known of each job's memory by now."""

    def __init__(self, room: Room, profiling: Profiling, elastic: bool = False) -> None:
        """Nothing is known beyond what the jobs say.

        Args:
            elastic: Whether the lanes of a device share its memory, each as much as its jobs need.
        """
        self._room, self._profiling, self._elastic = room, profiling, elastic
        self._shown_bytes: dict[str, int] = {}

    def took(self, job: Job, peak_bytes: int) -> None:
        """A job has run to its end with so much memory: others of its class, if it was never measured, are granted more
        than that, and need not have all."""
        name = job.spec.job_class
        self._shown_bytes[name] = max(peak_bytes, self._shown_bytes.get(name, 0))

    def fits(self, job: Job, lane: Lane) -> bool:
        """Whether the job may be started there now.

        A gang holds its lanes whole: its members must have their turns together, or their collectives would wait for
        each other.
        """
        if self._profiling.occupies(lane) or any(other.spec.gpus > 1 for other in lane.jobs.values()):
            return False
        return lane.takes(self.demand(job, lane)) and (not self._elastic or self.joins(lane.device.name, [job]))

    def joins(self, device: str, newcomers: Iterable[Job]) -> bool:
        """Whether a device has memory for these beside those that are there, in whichever of its lanes they are.

        The condition of a lane (`memory.lane_fits`) summed over its lanes, with the largest T that could meet.
        """
        lane = self._room.devices[device][0]
        return self._taken_bytes(device, [self.demand(job, lane) for job in newcomers]) <= lane.device.memory_bytes

    def _taken_bytes(self, device: str, more: Iterable[MemoryDemand] = ()) -> int:
        lanes = self._room.devices[device]
        demands = [*(job.demand for lane in lanes for job in lane.jobs.values()), *more]
        ephemeral = nlargest(len(lanes), (each.ephemeral_bytes for each in demands))
        return sum(each.persistent_bytes for each in demands) + sum(ephemeral)

    def granted(self, job: Job, lane: Lane) -> MemoryDemand:
        """What it gets when it is started there.

        Where lanes are elastic and its class is about to be measured, all that is free until then: nobody can say how
        much it needs, and it would be a pity to find out by its end.
        """
        demand = self.demand(job, lane)
        known = self._measured(job) is not None or self._shown_bytes.get(job.spec.job_class)
        if not self._elastic or not self._profiling.will(job) or known:
            return demand
        free_bytes = lane.device.memory_bytes - self._taken_bytes(lane.device.name)
        return MemoryDemand(max(demand.peak_bytes, free_bytes))

    def is_new(self, job: Job) -> bool:
        """Whether its class is not known, and will be measured as soon as the job is warm.

        Where one has run to its end without that, others are too short for it, too.
        """
        soon = self._profiling.will(job) and not self._profiling.too_short(job, job.told_s)
        return soon and job.spec.job_class not in self._shown_bytes

    def never(self, job: Job) -> str | None:
        """Why the job could not start even in an empty cluster, or None where it could."""
        in_node, devices, largest_bytes = self._room.limits()
        gpus, nodes = job.spec.gpus, job.spec.nodes
        if nodes is None:
            if gpus > devices:
                return f"needs {gpus} devices, and {devices} can be had"
        elif gpus > in_node * nodes:
            where = "one node" if nodes == 1 else f"{nodes} nodes"
            return f"needs {gpus} devices of {where}, and {in_node * nodes} can be had"
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
        """What the job must be granted there, if not what it has shown to need.

        Its profile's demand, else more than others of its class have had, else an equal share of the lane.
        """
        if job.whole_lane or job.spec.gpus > 1:
            return MemoryDemand(lane.budget_bytes)
        shown_bytes = self._shown_bytes.get(job.spec.job_class)
        otherwise = int(SPARE * shown_bytes) if shown_bytes else lane.budget_bytes // lane.places
        demand = self._measured(job) or MemoryDemand(otherwise)
        if demand.peak_bytes < job.least_bytes:
            demand = MemoryDemand(job.least_bytes)
        return demand if demand.peak_bytes <= lane.budget_bytes else MemoryDemand(lane.budget_bytes)

    def fuses(self, job: Job) -> bool:
        """Whether an attempt shares its process: the first one of a job that may, once it is known what it needs.

        In a shared process nobody can tell how much a job has of its own; and one that had to leave it, or died with
        it, is not to do so again.
        """
        known = self._measured(job) is not None or job.spec.job_class in self._shown_bytes
        return job.spec.fused and job.attempt == 1 and known

    def cap(self, job: Job, lanes: tuple[Lane, ...]) -> int:
        """Most bytes that a job with its demand may rise to."""
        if job.demand == self._measured(job):
            return cap_bytes(job.demand, min(lane.budget_bytes for lane in lanes))
        return job.demand.peak_bytes

    def largest_bytes(self) -> int:
        """Of any lane that can be had."""
        return self._room.limits()[2]

    def _measured(self, job: Job) -> MemoryDemand | None:
        return self._profiling.memory.get(job.spec.job_class) or job.spec.memory
