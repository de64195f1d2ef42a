"""What the core knows of each job and lane, with their states guarded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ecoshare.core.events import Device, JobSpec, Usage
from ecoshare.core.memory import MemoryDemand, lane_fits
from ecoshare.core.states import JOB_MOVES, LANE_MOVES, JobState, LaneState, Step, move

Key = tuple[float, ...]
"""A place in an order: the smallest goes first."""


@dataclass(slots=True, eq=False)
class Job:
    """A job from its arrival to its end.

    Attributes:
        attempt: Number of the present or last attempt; 0 before the first.
        command: Id of the `StartJob` that is not acknowledged yet.
        cap_bytes: Most memory that the present or last attempt may rise to.
        whole_lane: It ran out of memory once and now gets a lane's whole budget.
        least_bytes: That it needs at least, by what was seen of it.
        again: An end that was asked for is followed by a new attempt (a suspect neighbour, say).
        passed: How often a job behind it in the queue was started before it.
        losses: Attempts that ended through no fault of the job's own.
        deaths: Those of them that ended with the process that they came from or shared. Two make the job suspect.
        earlier_s: Time that earlier attempts held the turn; `earlier_iterations`: what they did, where it goes on
            from there.
        iterations_until_rung: Iterations after which a trial pauses at its next rung; None if it runs to its end.
        first_start_s: When its first attempt was started; None before.
        told_s: When `usage` was told.
        boundary_s: When this attempt had its first boundary; None before that was told.
        behind_since_s: When it was put behind the group of its device; None where it belongs to it.
        stood_s: For how long it was behind it since `told_s`, before that.
        left_s: Turn time that it was told to need still; None where nobody told.
        waits_since_s: When it began to wait for a place, the last time.
        place: Its key among the jobs that wait, or among those that run and may be asked to give way; `drift`: by how
            much the first part of the latter changes in a second.
        level: Queue of a policy that has several, 0 first; `level_s`: since when it is there; `forgiven_s`: time held
            that no longer counts there.
    """

    spec: JobSpec
    arrival_s: float
    number: int = 0
    state: JobState = JobState.QUEUED
    attempt: int = 0
    command: int | None = None
    lanes: tuple[Lane, ...] = ()
    demand: MemoryDemand = field(default_factory=lambda: MemoryDemand(0))
    cap_bytes: int = 0
    whole_lane: bool = False
    least_bytes: int = 0
    again: bool = False
    failures: int = 0
    losses: int = 0
    deaths: int = 0
    passed: int = 0
    usage: Usage = field(default_factory=Usage)
    earlier_s: float = 0.0
    earlier_iterations: int = 0
    iterations_until_rung: int | None = None
    first_start_s: float | None = None
    told_s: float = 0.0
    boundary_s: float | None = None
    behind_since_s: float | None = None
    stood_s: float = 0.0
    left_s: float | None = None
    waits_since_s: float = 0.0
    place: Key = ()
    drift: float = 0.0
    level: int = 0
    level_s: float = 0.0
    forgiven_s: float = 0.0
    history: list[Step] = field(default_factory=list)

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what killed the process that others depend on: it runs when no other job does."""
        return self.deaths >= 2

    def move(self, to: JobState, at_s: float, cause: str) -> None:
        """Change the state.

        Raises:
            IllegalMove: The table of moves does not have it.
        """
        self.state = move(JOB_MOVES, f"job {self.spec.name!r}", self.state, to, at_s, cause, self.history)

    @property
    def has_turn_alone(self) -> bool:
        """Whether it runs and has its lanes to itself, so that it holds the turn all the time."""
        return self.state is JobState.RUNNING and all(len(lane.jobs) == 1 for lane in self.lanes)

    def tell(self, usage: Usage, at_s: float) -> None:
        """What this attempt has used by now."""
        self.usage, self.told_s = usage, at_s
        self.stood_s = 0.0
        if self.behind_since_s is not None:
            self.behind_since_s = at_s
        if self.boundary_s is None and usage.done:
            self.boundary_s = at_s - usage.span_s
        if usage.left_s is not None:
            self.left_s = usage.left_s

    def held_s(self, at_s: float) -> float:
        """Time for which this attempt has held its turn: as told, and since then where it has it alone."""
        if self.has_turn_alone:
            return self.usage.held_s + at_s - self.told_s
        return self.usage.held_s

    def attained_s(self, at_s: float) -> float:
        """Time for which it has held a turn, over all attempts."""
        return self.earlier_s + self.held_s(at_s)

    def remaining_s(self, at_s: float) -> float | None:
        """Turn time until its end, or None where its length or its speed is not known.

        By the speed that this attempt shows, else by what was known of the job before.
        """
        held_s = self.held_s(at_s)
        if self.left_s is not None:
            return max(0.0, self.left_s - (held_s - self.usage.held_s))
        iteration_s = self.usage.iteration_s
        if self.spec.iterations is not None and iteration_s is not None:
            left = (self.spec.iterations - self.usage.iterations) * iteration_s - (held_s - self.usage.held_s)
        elif self.spec.service_s is not None:
            left = self.spec.service_s - held_s
        else:
            return None
        return max(0.0, left - self.earlier_s if self.spec.movable else left)

    def needs_s(self, at_s: float) -> float | None:
        """Time on one device alone until it ends or pauses; None where nobody knows.

        One profiled iteration times those that are left, else what remains of it.
        """
        iteration_s = self.spec.solo.iteration_s if self.spec.solo is not None else None
        ends_at = self.spec.iterations if self.iterations_until_rung is None else self.iterations_until_rung
        if ends_at is None or iteration_s is None:
            return self.remaining_s(at_s)
        return max(0, ends_at - self.earlier_iterations - self.usage.iterations) * iteration_s


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
    history: list[Step] = field(default_factory=list)

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
