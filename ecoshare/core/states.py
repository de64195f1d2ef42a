"""States of a job and of a lane, and the legal moves between them.

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

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeVar


class JobState(Enum):
    """State of a job."""

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
