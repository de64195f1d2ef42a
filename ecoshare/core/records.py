"""What the core knows of each job and lane, with their states guarded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ecoshare.core.events import Device, JobSpec, Usage
from ecoshare.core.memory import MemoryDemand, lane_fits
from ecoshare.core.states import JOB_MOVES, LANE_MOVES, JobState, LaneState, move


@dataclass(slots=True, eq=False)
class Job:
    """A job from its arrival to its end.

    Attributes:
        attempt: Number of the present or last attempt; 0 before the first.
        command: Id of the `StartJob` that is not acknowledged yet.
        whole_lane: It ran out of memory once and now gets a lane's whole budget.
        again: An end that was asked for is followed by a new attempt (a suspect neighbour, say).
        passed: How often a job behind it in the queue was started before it.
        losses: Attempts that ended through no fault of the job's own.
        earlier_s: Time that earlier attempts held the turn.
    """

    spec: JobSpec
    arrival_s: float
    state: JobState = JobState.QUEUED
    attempt: int = 0
    command: int | None = None
    lanes: tuple[Lane, ...] = ()
    demand: MemoryDemand = field(default_factory=lambda: MemoryDemand(0))
    whole_lane: bool = False
    again: bool = False
    failures: int = 0
    losses: int = 0
    passed: int = 0
    usage: Usage = field(default_factory=Usage)
    earlier_s: float = 0.0
    history: list[tuple[float, str]] = field(default_factory=list)

    def move(self, to: JobState, at_s: float, cause: str) -> None:
        """Change the state.

        Raises:
            IllegalMove: The table of moves does not have it.
        """
        self.state = move(JOB_MOVES, f"job {self.spec.name!r}", self.state, to, at_s, cause, self.history)

    @property
    def attained_s(self) -> float:
        """Time for which it has held a turn, over all attempts."""
        return self.earlier_s + self.usage.held_s

    @property
    def remaining_s(self) -> float | None:
        """Turn time until its last iteration, or None where its length or its speed is not known."""
        if self.spec.iterations is None or not self.usage.iterations:
            return None
        left = max(0, self.spec.iterations - self.usage.iterations)
        return left * self.usage.held_s / self.usage.iterations


@dataclass(slots=True, eq=False)
class Lane:
    """A memory budget and one turn on a device.

    Attributes:
        places: Most jobs at once.
        shares_sent: The claims last sent to the driver, so that only changes are sent.
    """

    number: int
    device: Device
    budget_bytes: int
    places: int
    command: int
    state: LaneState = LaneState.OPENING
    jobs: dict[str, Job] = field(default_factory=dict)
    shares_sent: tuple[object, ...] = ()
    history: list[tuple[float, str]] = field(default_factory=list)

    def move(self, to: LaneState, at_s: float, cause: str) -> None:
        """Change the state.

        Raises:
            IllegalMove: The table of moves does not have it.
        """
        self.state = move(LANE_MOVES, f"lane {self.number}", self.state, to, at_s, cause, self.history)

    def takes(self, demand: MemoryDemand) -> bool:
        """Whether one more job with this demand may be started here."""
        if self.state is not LaneState.OPEN or len(self.jobs) >= self.places:
            return False
        return lane_fits([*self._demands(), demand], self.budget_bytes)

    def _demands(self) -> Iterable[MemoryDemand]:
        return (job.demand for job in self.jobs.values())
