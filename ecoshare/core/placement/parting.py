"""Parting: jobs leave the lane of a service that has missed its target for a minute because of their iterations.

::

    lane 0   S A S A A S        lane 0   S   S     S       1. another lane of the device has room: A moves there
    lane 1   B B B B B B   ──►  lane 1   B A B A B A
                                                           2. host memory is free: A is parked until S has ended
                                                           3. A is movable: it stops, and begins again elsewhere

A job for which there is no such way stays. The target goes on being missed then, which the run tells at its end. So
does a service that is too slow alone: no job of its lane has iterations that are too long.
"""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.core.placement.displacement import may_be_stopped
from ecoshare.core.placement.host_memory import HostMemory
from ecoshare.core.placement.job_moves import JobMoves
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.latency_room import clash, clash_words
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.steps import GiveWay, Park, Step
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState


class Parting:
    """Choice of the jobs that leave, and of their ways."""

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
        free_bytes = device.memory_bytes - self._fit.needed_bytes(device.name)
        lanes = [
            lane
            for lane in self._lane_index.devices[device.name]
            if lane is not job.lanes[0]
            and lane.has_place
            and job.demand.ephemeral_bytes <= free_bytes
            and self._fit.latency.admits(job, [*lane.jobs.values(), *lane.coming.values()])
        ]
        return min(lanes, key=lambda lane: (len(lane.jobs), lane.number), default=None)
