"""Attempts of a job: how one ended, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WORK_OVER = "all other jobs have ended"
"""Reason for the end of an attempt of an open-ended service."""


class Outcome(Enum):
    """How an attempt of a job ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    """The job exited with a code other than 0."""
    CRASHED = "crashed"
    """A signal that ecoshare did not send ended the job."""
    OUT_OF_MEMORY = "out of memory"
    """The job itself failed for lack of memory."""
    OUTGREW = "outgrew its memory"
    """The device had no memory left, and the job had taken more than it was promised."""
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    """A `KillJob` command ended the job."""
    PRUNED = "pruned"
    """Early stopping ended the trial."""
    LOST = "lost"
    """The job died with its supervisor, or with another job in the same process."""
    MOVED_OUT = "moved out"
    """The job left a shared process because it needs a process of its own."""
    NOT_RESUMED = "not resumed"
    """The memory of the parked job was lost on its way to the host or back."""
    DEVICE_FAILED = "device failed"
    """A device of the job failed during the attempt."""

    @property
    def is_the_end(self) -> bool:
        """Whether the job is over with it as it should: it completed, or its sweep pruned it."""
        return self in (Outcome.COMPLETED, Outcome.PRUNED)

    @property
    def was_asked_for(self) -> bool:
        """Whether ecoshare asked the job to end."""
        return self in (Outcome.STOPPED, Outcome.PRUNED)


_SEEN_WITHIN_S = 2.0
"""Time (s) with the turn within which most scripts have done an iteration."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that an attempt of a job has used so far.

    Attributes:
        iterations: Number of training iterations done.
        eval_iterations: Number of inference iterations done.
        held_s: Time (s) in which the attempt held its turn.
        waited_s: Time (s) of waiting for the turn between its first boundary and its last.
        span_s: Wall time (s) from its first boundary to its last.
        cpu_s: Processor time (s) of all its processes.
        peak_bytes: Largest memory seen, on the device or, on processors, as proportional set size.
        kept_bytes: Device memory that the attempt keeps while it waits, as of its last boundary; 0 on processors.
        longest_wait_s: Longest single wait (s) for the turn.
        handovers: Number of times that the attempt got the turn.
        left_s: Turn time (s) until the end, if the driver knows it better than iterations and their times tell; else
            None.
        longest_iteration_s: Longest iteration (s) of late, or longest answer of a service; 0 before the first.
        keeps_lane: Reason, in words, why the attempt keeps its lane to its end: its child processes use the device.
            Empty if it does not.
        by_steps: Whether training iterations are steps of optimizers that step by turns, such as those of a GAN: one
            pass of the script's loop is several iterations.
        cut_s: Longest time (s) of late until its turn could be cut inside an iteration; 0 before the first wish for it.
        never_cut: Whether nothing in its process could hand its turn over inside an iteration.
    """

    iterations: int = 0
    eval_iterations: int = 0
    held_s: float = 0.0
    waited_s: float = 0.0
    span_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    kept_bytes: int = 0
    longest_wait_s: float = 0.0
    handovers: int = 0
    left_s: float | None = None
    longest_iteration_s: float = 0.0
    keeps_lane: str = ""
    by_steps: bool = False
    cut_s: float = 0.0
    never_cut: bool = False

    @property
    def done(self) -> int:
        """Number of iterations of both kinds."""
        return self.iterations + self.eval_iterations

    @property
    def by_time(self) -> bool:
        """Whether the attempt shares by the time of its turns: it has had several, and no iteration was seen."""
        return not self.done and self.handovers > 1 and self.held_s >= _SEEN_WITHIN_S

    @property
    def iteration_s(self) -> float | None:
        """Mean turn time (s) of a training iteration and the inference between two; None before two are done.

        The mean covers the time from the first boundary to the last, because the script starts up before the first one.
        """
        if self.iterations < 2:
            return None
        return max(0.0, self.span_s - self.waited_s) / (self.iterations - 1)


@dataclass(frozen=True, slots=True)
class GangPart:
    """Ranks of a gang on one of its nodes.

    Attributes:
        first_rank: Number of the first of these ranks in the gang.
        world_size: Number of ranks of the gang.
        node: Number of this node among those of the gang; rank 0 is on node 0.
        nodes: Number of nodes of the gang.
        address: Address of node 0.
        port: Port at which rank 0 opens the store of the rendezvous.
    """

    first_rank: int
    world_size: int
    node: int
    nodes: int
    address: str
    port: int
