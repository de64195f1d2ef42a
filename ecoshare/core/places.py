"""Places of jobs in lanes: taken when a job starts or is resumed, free again when it has exited or is parked."""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import ResumeJob, StartJob
from ecoshare.core.parking import Parking
from ecoshare.core.placement.allocator_rules import AllocatorRules
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.records import Job, Lane
from ecoshare.core.run_state import RunState
from ecoshare.core.states import JobState

CARRIED = "goes on from the segment before"


class Places:
    """Places in all lanes, kept equal in the strategy, its lanes, the memory of devices and the state of the run."""

    def __init__(
        self,
        placement: PlacementStrategy,
        parking: Parking,
        memory: AllocatorRules,
        state: RunState,
        next_id: Callable[[], int],
    ) -> None:
        """No place is taken."""
        self._placement, self._parking, self._memory = placement, parking, memory
        self._state, self._next_id = state, next_id
        self._lane_index, self._fit = placement.lane_index, placement.fit

    def take(self, job: Job, lanes: tuple[Lane, ...], at_s: float) -> StartJob | ResumeJob:
        """Give a waiting job its places: a new attempt starts there, or the parked one is resumed."""
        job.lanes = lanes
        if job.state is JobState.PARKED:
            self._take(job, fused=False)
            return self._parking.resume(job, at_s)
        job.demand = self._fit.granted(job, lanes[0])
        job.attempt += 1
        job.command = self._next_id()
        if job.first_start_s is None:
            job.first_start_s = at_s
        self._state.starting[job.command] = job
        job.move(JobState.STARTING, at_s, "there is room")
        numbers = tuple(lane.number for lane in lanes)
        job.fused = self._fit.fuses(job)
        self._take(job, job.fused)
        job.promised = job.demand
        job.cap_bytes = self._fit.cap(job, lanes)
        return StartJob(job.command, job.spec.name, job.attempt, numbers, job.cap_bytes, job.fused)

    def keep(self, job: Job, lanes: tuple[Lane, ...], at_s: float) -> None:
        """Give a waiting job the places in which it runs already, since the segment before."""
        job.lanes = lanes
        self._take(job, job.fused)
        job.move(JobState.STARTING, at_s, CARRIED)
        job.move(JobState.RUNNING, at_s, CARRIED)

    def leave(self, job: Job) -> None:
        """Free the places of a job, if it has any. The claims of the remaining jobs keep their order."""
        if job.lanes:
            self._placement.left(job)
            self._lane_index.give(job)
            self._memory.look(job.lanes)
            self._memory.left(job)
            self._state.placed -= 1

    def _take(self, job: Job, fused: bool) -> None:
        self._lane_index.take(job)
        self._memory.look(job.lanes)
        self._state.placed += 1
        self._placement.takes(job, fused)
