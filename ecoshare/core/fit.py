"""Whether a job fits into a lane, and how much memory it is granted there."""

from __future__ import annotations

from ecoshare.core.memory import MemoryDemand, cap_bytes
from ecoshare.core.profiling import Profiling
from ecoshare.core.records import Job, Lane
from ecoshare.core.room import Room


class Fit:
    """The safety condition, with what is known of each job's memory by now."""

    def __init__(self, room: Room, profiling: Profiling) -> None:
        self._room, self._profiling = room, profiling

    def fits(self, job: Job, lane: Lane) -> bool:
        """Whether the job may be started there now.

        A gang holds its lanes whole: its members must have their turns together, or their collectives would wait for
        each other.
        """
        if self._profiling.occupies(lane) or any(other.spec.gpus > 1 for other in lane.jobs.values()):
            return False
        return lane.takes(self.demand(job, lane))

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

    def demand(self, job: Job, lane: Lane) -> MemoryDemand:
        """What the job must be granted there: its profile's demand, else an equal share of the lane."""
        if job.whole_lane or job.spec.gpus > 1:
            return MemoryDemand(lane.budget_bytes)
        demand = self._measured(job) or MemoryDemand(lane.budget_bytes // lane.places)
        return demand if demand.peak_bytes <= lane.budget_bytes else MemoryDemand(lane.budget_bytes)

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
