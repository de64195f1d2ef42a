"""Records of each job and lane in the core. A table of legal moves guards their states."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import JobPhase
from ecoshare.core.turns import expected_cut_s


class JobState(Enum):
    """State of a job.

    ::

        job    QUEUED ───► STARTING ───► RUNNING ───► COMPLETED | FAILED | PRUNED
                 ▲ │          │ │           │ │
                 │ │          │ └──► STOPPING ◄┘ ───► COMPLETED | FAILED | CANCELLED | PRUNED
                 │ │          │         │   │ └─────► PAUSED ───► PRUNED | CANCELLED
                 └─┼──────────┴─────────┴───┴────────────┘         a new attempt
                   └───────────────────────────────► COMPLETED | FAILED | CANCELLED   (needless; never fits; stopped)

               RUNNING ──► PARKING ──► PARKED ──► RESUMING ──► RUNNING
               QUEUED ──► HELD ──► QUEUED | COMPLETED | CANCELLED

        lane   OPENING ──► OPEN ──► CLOSED

    The drawing leaves out rare moves. A STARTING job may end as COMPLETED, FAILED or PRUNED before its start is
    acknowledged. A QUEUED service is COMPLETED when all other jobs have ended. A job that is parked or about to be can
    stop, end or begin again like a running one. An OPENING lane that cannot be opened becomes CLOSED.
    """

    QUEUED = "queued"
    HELD = "held"
    """The job does not wait for a place until the user releases it."""
    STARTING = "starting"
    RUNNING = "running"
    PARKING = "parking"
    """The job moves its device memory to the host, and then gives up its place."""
    PARKED = "parked"
    """The job waits for a place with its process alive and its device memory on the host."""
    RESUMING = "resuming"
    """The job has a place again and moves its memory back."""
    STOPPING = "stopping"
    PAUSED = "paused"
    """The trial waits at a rung, without a place, for the decision about which trials go on."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PRUNED = "pruned"
    """Early stopping ended the trial, or the trial pruned itself."""

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return not JOB_MOVES[self]

    @property
    def waits(self) -> bool:
        """Whether the job waits for a place."""
        return self in (JobState.QUEUED, JobState.PARKED)

    @property
    def is_leaving(self) -> bool:
        """Whether the job is about to give up its place."""
        return self in (JobState.PARKING, JobState.STOPPING)


class LaneState(Enum):
    """State of a lane."""

    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


_BEGINS = frozenset(
    {JobState.RUNNING, JobState.STOPPING, JobState.QUEUED, JobState.COMPLETED, JobState.FAILED, JobState.PRUNED}
)

JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        {JobState.STARTING, JobState.HELD, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.HELD: frozenset({JobState.QUEUED, JobState.COMPLETED, JobState.CANCELLED}),
    JobState.STARTING: _BEGINS,
    JobState.RUNNING: _BEGINS - {JobState.RUNNING} | {JobState.PARKING},
    JobState.PARKING: _BEGINS | {JobState.PARKED},
    JobState.PARKED: _BEGINS - {JobState.RUNNING} | {JobState.RESUMING},
    JobState.RESUMING: _BEGINS,
    JobState.STOPPING: frozenset(
        {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.PRUNED, JobState.PAUSED, JobState.QUEUED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.PRUNED, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.PRUNED: frozenset(),
}

FINAL_STATES = frozenset(state.value for state in JobState if state.ended)
"""Values of the final states of a job."""

LANE_MOVES: dict[LaneState, frozenset[LaneState]] = {
    LaneState.OPENING: frozenset({LaneState.OPEN, LaneState.CLOSED}),
    LaneState.OPEN: frozenset({LaneState.CLOSED}),
    LaneState.CLOSED: frozenset(),
}

State = TypeVar("State", JobState, LaneState)


class Step(NamedTuple):
    """One move in the history of a job or lane."""

    at_s: float
    before: Enum
    after: Enum
    cause: str


class IllegalMove(Exception):
    """Defect: a job or lane was asked to make a move that its table does not have.

    The message carries the whole history of the job or lane, so a report of the defect can be read without the run.
    """

    def __init__(self, name: str, state: Enum, to: Enum, cause: str, history: list[Step]) -> None:
        lines = "\n".join(
            f"  {step.at_s:12.6f} s  {step.before.value} -> {step.after.value}: {step.cause}" for step in history
        )
        super().__init__(f"{name} cannot go from {state.value} to {to.value} ({cause}); its history:\n{lines}")


def move(
    moves: dict[State, frozenset[State]],
    name: str,
    state: State,
    to: State,
    at_s: float,
    cause: str,
    history: list[Step],
) -> State:
    """Check a move, append it to `history` and return the state `to`.

    Raises:
        IllegalMove: The table `moves` does not lead from `state` to `to`.
    """
    if to not in moves[state]:
        raise IllegalMove(name, state, to, cause, history)
    history.append(Step(at_s, state, to, cause))
    return to


Key = tuple[float, ...]
"""Sort key of a job or a lane: the smallest goes first."""

WARM_ITERATIONS, WARM_S = 50, 30.0
"""Iterations, and time (s) with the turn: either shows that a job is warm. First iterations take longer."""


@dataclass(slots=True, eq=False)
class Job:
    """A job from its arrival to its end.

    Attributes:
        arrival_s: Time (s) of its arrival.
        number: Number of the job in the order of arrival, from 0.
        attempt: Number of the present or last attempt; 0 before the first.
        command: Id of the `StartJob`, `ParkJob` or `ResumeJob` that has no answer yet; None if there is none.
        lanes: Lanes in which the job has a place, one for each of its devices.
        parked_in: Lane in which the job was parked, and will be resumed; None if it is not parked.
        demand: Memory demand that the job is granted.
        promised: Memory demand that the present or last attempt was granted at its start.
        cap_bytes: Limit of the allocator of the present or last attempt; where there is none, that demand.
        fused: Whether the present or last attempt shares a process with other jobs.
        whole_device: Whether the job has outgrown its memory once, and now gets all memory of its device.
        least_bytes: Lower bound of the memory that the job is granted, from what it was seen to take.
        again: Whether a new attempt follows the end of this one, which the core asked for (a suspect neighbour, say).
        cancelled: Whether the user has cancelled the job.
        resumable: Whether the job has ended with its session alone: it goes on when the run is resumed.
        failures: Number of failures that count against its retries.
        false_starts: Number of failures of a service in a row that were false starts.
        losses: Number of attempts that ended through no fault of the job.
        deaths: Number of losses in which the process that the attempt came from or shared died. Two make a suspect.
        passed: Number of times that a job behind it in the queue was started before it.
        usage: Resources that the present attempt has used; as told last.
        phase: Phase of the present attempt, as told last.
        earlier_s: Time (s) for which earlier attempts held the turn.
        earlier_iterations: Training iterations of earlier attempts, if the job continues from there; counted as
            `done_iterations` does.
        iterations_until_rung: Iterations after which a trial pauses at its next rung; None if it runs to its end.
        first_start_s: Time (s) of the start of its first attempt; None before.
        told_s: Time (s) at which `usage` was told.
        measured_longest_s: Longest iteration (s) of late, or longest answer of a service, in this attempt or an earlier
            one; None before the job is warm.
        boundary_s: Time (s) of the first boundary of this attempt; None before it is known.
        behind_since_s: Time (s) at which the job was put behind the group of its device, or `told_s` if that is later;
            None if it belongs to the group.
        stood_s: Time (s) since `told_s` that the job spent behind the group before it joined the group again.
        left_s: Remaining turn time (s) as the driver told it; None if it never did.
        waits_since_s: Time (s) at which the job last began to wait for a place.
        place: Sort key among the waiting jobs, or among the running jobs that may be preempted.
        drift: Change per second of the first part of `place` while the job runs.
        level: Level of the job; 0 goes first. Depending on the policy it is a queue or the place in a round. Under a
            policy that packs it is 0 for a member of the group of a device, and 1 for a job behind the group.
        level_s: Time (s) at which the job entered its queue.
        forgiven_s: Time held (s) that no longer counts in the queues.
    """

    spec: JobSpec
    arrival_s: float
    number: int = 0
    state: JobState = JobState.QUEUED
    attempt: int = 0
    command: int | None = None
    lanes: tuple[Lane, ...] = ()
    parked_in: Lane | None = None
    demand: MemoryDemand = field(default_factory=lambda: MemoryDemand(0))
    promised: MemoryDemand = field(default_factory=lambda: MemoryDemand(0))
    cap_bytes: int = 0
    fused: bool = False
    whole_device: bool = False
    least_bytes: int = 0
    again: bool = False
    cancelled: bool = False
    resumable: bool = False
    failures: int = 0
    false_starts: int = 0
    losses: int = 0
    deaths: int = 0
    passed: int = 0
    usage: Usage = field(default_factory=Usage)
    phase: JobPhase = JobPhase.TRAINS
    earlier_s: float = 0.0
    earlier_iterations: int = 0
    iterations_until_rung: int | None = None
    first_start_s: float | None = None
    told_s: float = 0.0
    measured_longest_s: float | None = None
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
        """Whether the job may have killed a process that other jobs need. A suspect runs when no other job does."""
        return self.deaths >= 2

    def move(self, to: JobState, at_s: float, cause: str) -> None:
        """Change the state of the job.

        Raises:
            IllegalMove: The table of moves does not have this move.
        """
        self.state = move(JOB_MOVES, f"job {self.spec.name!r}", self.state, to, at_s, cause, self.history)

    @property
    def widening(self) -> float:
        """Present devices over those that the job needs, at least 1. Only an elastic policy gives a job more."""
        return max(1.0, len(self.lanes) / self.spec.gpus)

    @property
    def done_iterations(self) -> int:
        """Training iterations of all attempts, as many as the job would have done on `JobSpec.gpus` devices.

        The ranks on twice as many devices either do two iterations at once, or half of one each. The time of an
        iteration shows which: it is then nearer to that of a whole iteration, or to half of it.
        """
        return self.earlier_iterations + int(self.counts_for * self.usage.iterations)

    @property
    def counts_for(self) -> float:
        """Iterations on `JobSpec.gpus` devices for which one of the present attempt counts: see `done_iterations`."""
        if len(self.lanes) <= self.spec.gpus or self.spec.solo is None:
            return 1.0
        own_s, solo_s = self.usage.iteration_s, self.spec.solo.iteration_s
        is_whole = own_s and solo_s and own_s > solo_s / math.sqrt(self.widening)
        return self.widening if is_whole else 1.0

    @property
    def exceeds_its_length(self) -> bool:
        """Whether the job has done more iterations than `JobSpec.iterations`. Then its length is unknown."""
        return self.spec.iterations is not None and self.done_iterations > self.spec.iterations

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names of the devices of its lanes."""
        return tuple(lane.device.name for lane in self.lanes)

    @property
    def has_turn_alone(self) -> bool:
        """Whether the job runs and has its lanes to itself. It then holds the turn all the time."""
        return self.state is JobState.RUNNING and all(len(lane.jobs) == 1 for lane in self.lanes)

    def tell(self, usage: Usage, at_s: float) -> None:
        """Note what the present attempt has used up to now."""
        self.usage, self.told_s = usage, at_s
        self.stood_s = 0.0
        if self.behind_since_s is not None:
            self.behind_since_s = at_s
        if self.boundary_s is None and usage.done:
            self.boundary_s = at_s - usage.span_s
        if usage.left_s is not None:
            self.left_s = usage.left_s
        if usage.longest_iteration_s and (usage.done >= WARM_ITERATIONS or usage.held_s >= WARM_S):
            self.measured_longest_s = usage.longest_iteration_s

    @property
    def longest_iteration_s(self) -> float | None:
        """Time (s) that an iteration, or an answer of a service, takes at most: measured, else profiled, else None."""
        if self.measured_longest_s is None and self.spec.solo is not None:
            return self.spec.solo.longest_s
        return self.measured_longest_s

    @property
    def longest_turn_s(self) -> float | None:
        """Time (s) for which the job keeps its turn at most while a service must have it; None if it is not known.

        It is an iteration, or the time to a cut inside one: of late, else expected. The device has memory for cuts.
        """
        longest_s = self.longest_iteration_s
        if longest_s is None or not self.spec.cuttable or self.usage.keeps_lane or self.usage.never_cut:
            return longest_s
        return min(longest_s, self.usage.cut_s or expected_cut_s(longest_s))

    def held_s(self, at_s: float) -> float:
        """Time (s) for which this attempt has held its turn.

        The value is the time as told last. If the job has the turn alone, the time since then is added.
        """
        if self.has_turn_alone:
            return self.usage.held_s + at_s - self.told_s
        return self.usage.held_s

    def attained_s(self, at_s: float) -> float:
        """Time (s) for which the job has held its turn, over all attempts."""
        return self.earlier_s + self.held_s(at_s)

    def remaining_s(self, at_s: float) -> float | None:
        """Turn time (s) until the end of the job; None if its length or its speed is unknown.

        The value follows from the driver's word, else from the speed of this attempt, else from `JobSpec.service_s`.
        """
        held_s = self.held_s(at_s)
        if self.left_s is not None:
            return max(0.0, self.left_s - (held_s - self.usage.held_s))
        if self.exceeds_its_length:
            return None
        iteration_s = self.usage.iteration_s
        if self.spec.iterations is not None and iteration_s is not None:
            to_do = self.spec.iterations - self.usage.iterations - self.earlier_iterations
            return max(0.0, to_do * iteration_s - (held_s - self.usage.held_s))
        if self.spec.service_s is not None:
            left = self.spec.service_s - held_s
            return max(0.0, left - self.earlier_s if self.spec.movable else left)
        return None

    def needs_s(self, at_s: float) -> float | None:
        """Time (s) on one device alone until the job ends or pauses; None if unknown.

        The value is the profiled iteration time multiplied by the iterations left. Without either it is `remaining_s`,
        with the time on all present devices added up unless the driver told it.
        """
        iteration_s = self.spec.solo.iteration_s if self.spec.solo is not None else None
        ends_at = self.spec.iterations if self.iterations_until_rung is None else self.iterations_until_rung
        if ends_at is None or iteration_s is None or self.exceeds_its_length:
            left_s = self.remaining_s(at_s)
            return left_s if left_s is None or self.left_s is not None else left_s * self.widening
        return max(0, ends_at - self.done_iterations) * iteration_s


@dataclass(slots=True, eq=False)
class Lane:
    """Lane: one turn on a device. All lanes of a device share its memory.

    Attributes:
        places: Most jobs when one starts here, itself included. Jobs behind the group of the device may be more.
        command: Id of the `OpenLane` command; 0 for a lane that was open when the segment of the log began.
        jobs: Jobs that have a place in the lane, by name.
        coming: Jobs that are about to move here from another lane of the device, by name.
        empties: Whether jobs empty their caches while they wait: there is memory for one iteration, so none is cut.
        shares_sent: Claims that were sent to the driver last. Only changes are sent.
    """

    number: int
    device: Device
    places: int
    command: int = 0
    state: LaneState = LaneState.OPENING
    jobs: dict[str, Job] = field(default_factory=dict)
    coming: dict[str, Job] = field(default_factory=dict)
    empties: bool = False
    shares_sent: tuple[object, ...] = ()
    history: list[Step] = field(default_factory=list)

    def move(self, to: LaneState, at_s: float, cause: str) -> None:
        """Change the state of the lane.

        Raises:
            IllegalMove: The table of moves does not have this move.
        """
        self.state = move(LANE_MOVES, f"lane {self.number}", self.state, to, at_s, cause, self.history)

    @property
    def has_place(self) -> bool:
        """Whether the lane is open and has a free place."""
        return self.state is LaneState.OPEN and self.taken < self.places

    @property
    def taken(self) -> int:
        """Number of jobs that are in the lane or about to move there."""
        return len(self.jobs) + len(self.coming)
