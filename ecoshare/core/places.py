"""Places in lanes: a lane opens, a job takes a place and keeps it until it has exited."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ecoshare.core.commands import Command, OpenLane, ResumeJob, SetShares, Share, StartJob
from ecoshare.core.events import RunOpened
from ecoshare.core.moves import Parking
from ecoshare.core.placement.allocator_rules import AllocatorRules
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.policies.base import Policy
from ecoshare.core.records import Job, JobState, Lane, LaneState
from ecoshare.core.run_state import RunState

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

    def keep(self, job: Job, lanes: tuple[Lane, ...], state: str, since_s: float) -> None:
        """Give a waiting job the places that it has had since the segment before.

        Args:
            job: The job.
            lanes: Lanes of the job.
            state: State of the job, if it starts or stops; empty if it runs.
            since_s: Time (s) since which it is in this state.
        """
        job.lanes = lanes
        self._take(job, job.fused)
        job.move(JobState.STARTING, since_s, CARRIED)
        if job.command is not None:
            self._state.starting[job.command] = job
        if state != JobState.STARTING.value:
            job.move(JobState(state) if state else JobState.RUNNING, since_s, CARRIED)

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


class LaneOpening:
    """Makes the lanes of all devices, numbered as `RunOpened.lanes` says."""

    def __init__(
        self, opened: RunOpened, placement: PlacementStrategy, state: RunState, next_id: Callable[[], int]
    ) -> None:
        """No lane is made yet.

        Args:
            opened: Opening of the run or segment.
            placement: Placement strategy of the run.
            state: State of the run.
            next_id: Function that returns the id of the next command.
        """
        self._opened, self._placement, self._state, self._next_id = opened, placement, state, next_id

    def begin(self) -> list[OpenLane]:
        """Take over the lanes that are open, and return the commands that open the others."""
        opened, index = self._opened, self._placement.lane_index
        places = self._placement.policy.places or opened.config.places_per_lane
        kept = dict(opened.segment.lanes) if opened.segment is not None else {}
        commands = []
        for number, device in opened.lanes.items():
            lane = Lane(number, device, places)
            index.add(lane)
            if number in kept:
                lane.move(LaneState.OPEN, opened.at_s, CARRIED)
                index.opened(lane)
            else:
                lane.command = self._next_id()
                self._state.opening[lane.command] = lane
                commands.append(OpenLane(lane.command, number, device.name, device.memory_bytes))
        return commands


class LaneRanks:
    """Ranks in all lanes, by the policy of the run."""

    def __init__(self, policy: Policy, next_id: Callable[[], int]) -> None:
        self._policy, self._next_id = policy, next_id

    def changed(self, lanes: Iterable[Lane]) -> list[Command]:
        """`SetShares` for each lane in which the order of the jobs has changed. Ranks are sent as small numbers."""
        commands: list[Command] = []
        for lane in lanes:
            if lane.places == 1:
                continue
            ranks = {name: self._policy.rank(job) for name, job in lane.jobs.items()}
            dense = {rank: place for place, rank in enumerate(sorted(set(ranks.values())))}
            shares = tuple(Share(name, dense[rank], 1.0) for name, rank in ranks.items())
            if shares and shares != lane.shares_sent:
                lane.shares_sent = shares
                commands.append(SetShares(self._next_id(), lane.number, shares))
        return commands
