"""Layout of the table of a lane: the words of its header and its slots, and their meaning. See `lane_table.py`."""

from __future__ import annotations

import ctypes
from enum import IntEnum

SLOTS = 64
"""Most jobs in one lane."""

REFILL_AT_FIRST_S = 0.0025
"""Assumed cost (s) of a hand-over until it has been measured: the first quanta are long rather than wasteful."""

NO_SLOT = -1
"""Holder of a turn that no job has; as a reservation, it lets no job take the turn."""

ANY_SLOT = -2
"""Reservation that lets every job take the turn."""

NO_RANK = 2**31 - 1
"""Rank that stands for no job: above every rank that the controller sends."""

AT_ONCE = -(2**31)
"""Rank for which every holder makes room at its next boundary."""

REASON_BYTES = 512
"""Room for the reason why a job has ended."""

NO_GOAL = 0
UNREACHABLE = 1
"""Goal of a job that was asked to move and cannot: the job stays."""

MAGIC = 0x45434F42
"""First word of a table. It changes with the layout."""

WAIT_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Upper bounds (s) of the buckets of waits for the turn. A longer wait has the bucket after the last."""

KEPT = (
    "pid",
    "rank",
    "weight",
    "out_of_memory",
    "reason",
    "emptied",
    "limited_bytes",
    "peak_bytes",
    "kept_bytes",
    "held_s",
    "waited_s",
    "longest_wait_s",
    "handovers",
    "iterations",
    "eval_iterations",
    "by_steps",
    "first_s",
    "last_s",
    "waited_at_first_s",
    "waited_at_last_s",
    "warm_iterations",
    "iteration_s",
    "longest_iteration_s",
    "due_s",
    "answer_s",
    "most_batch",
    "cut",
    "cuts",
    "cut_s",
    "inside_s",
)
"""Fields that a job keeps when it moves to another lane: its claim, until the controller sends another, and its
counters. Held service is not kept: the job is a newcomer there. Requests to the job have been written to both slots."""


class SlotState(IntEnum):
    """State of the job in a slot, with respect to the turn."""

    EMPTY = 0
    """No job is here: the last one has ended, or has moved to its goal."""
    AWAY = 1
    """The job neither has nor wants the turn: it starts, loads data, or ends."""
    WAITING = 2
    HOLDING = 3


class CutState(IntEnum):
    """Whether the turn of a job may be cut inside an iteration."""

    NEVER = 0
    """It may not: nothing in its process could hand it over there."""
    READY = 1
    ASKED = 2
    """A job that waits has asked for it. It comes at the next safe place, or at a boundary before that."""
    INSIDE = 3
    """It was cut: the job waits inside an iteration, and keeps the memory of that."""


class BoundaryRequest(IntEnum):
    """Request of the controller to a job at its next boundary, or the job's answer."""

    NOTHING = 0
    OBSERVE = 1
    """Observe the memory over the next iterations, and write the result."""
    OBSERVED = 2
    """The result is written. The job stays at its boundary until the controller has looked at it."""
    FLUSH = 3
    """Write the trace."""
    LIMIT = 4
    """Limit the allocator to `cap_bytes` of the slot, which then tells the limit in force as `limited_bytes`."""
    UNFIT = 5
    """The job keeps more than that, so it has the limit that it had."""


class ParkRequest(IntEnum):
    """Request of the controller to park a job, or the job's answer."""

    NOTHING = 0
    ASKED = 1
    """The job shall wait without its turn, with its cache empty, and calls nothing of its device meanwhile."""
    READY = 2
    """The job does so."""
    MOVED = 3
    """The memory of the job has left the device. The job shall reserve the addresses that the driver has given up."""
    RESERVED = 4
    """The job has done so."""


class Header(ctypes.Structure):
    """State of the lane as a whole. Times are seconds of CLOCK_MONOTONIC, which all processes share.

    A service, or jobs of several ranks, may have to be let in before a boundary (`presses`).

    While other runs have the devices, the lane is closed (`closed`), and no job of it gets the turn.

    The waits for the turn (`waits`, in buckets, and `waited_s`, their sum) are those of all jobs that were ever in the
    lane, so that they never decrease. A slot is erased at the end of its job.
    """

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("holder", ctypes.c_int32),
        ("epoch", ctypes.c_uint64),
        ("waiting_rank", ctypes.c_int32),
        ("used", ctypes.c_int32),
        ("only", ctypes.c_int32),
        ("pinned", ctypes.c_uint32),
        ("empties", ctypes.c_uint32),
        ("presses", ctypes.c_uint32),
        ("jobs", ctypes.c_uint32),
        ("closed", ctypes.c_uint32),
        ("quantum_s", ctypes.c_double),
        ("early_at_s", ctypes.c_double),
        ("latest_s", ctypes.c_double),
        ("wait_per_job_s", ctypes.c_double),
        ("bound_s", ctypes.c_double),
        ("turn_s", ctypes.c_double),
        ("handed_s", ctypes.c_double),
        ("virtual_s", ctypes.c_double),
        ("latency_s", ctypes.c_double),
        ("refill_s", ctypes.c_double),
        ("empty_s", ctypes.c_double),
        ("handovers", ctypes.c_uint64),
        ("waits", ctypes.c_uint64 * (len(WAIT_BOUNDS_S) + 1)),
        ("waited_s", ctypes.c_double),
    )


class Slot(ctypes.Structure):
    """Claim, state and counters of one job.

    While the job holds its turn, its held time is `balance_s` plus the present time; otherwise it is `held_s`. One
    store of `seat` switches between the two. So no reader counts a turn twice, even if the job dies.

    A fused job shares its process (`pid`) with others, so it counts the processor time of its turns (`cpu_s`) itself.

    A job that is parked, or is about to be (`parked`), gets no turn; one that waits inside an iteration comes to its
    boundary first. Neither does a rank of a gang while a rank before it has no turn in its own lane (`barred`).

    A service that waits says when its answer is due (`due_s`), and how long the answer takes at most (`answer_s`). The
    time is 0 for any other job, and for a service that has nothing to answer.

    The controller tells a service the largest batch that it may form (`most_batch`), 0 for any that its job allows.

    A job on a GPU tells its largest device memory and what it keeps while it waits (`peak_bytes`, `kept_bytes`), both
    without its context.

    A job says whether its training iterations are steps of optimizers that step by turns (`by_steps`).

    At the end of its script, a job tells why it has failed (`reason`), in UTF-8; nothing if it has ended well.

    A job with the turn says whether that may be cut inside an iteration (`cut`). One that waits asks for it, and tells
    when (`cut_asked_s`). The holder counts its cuts (`cuts`). It tells how long they take of late, at most (`cut_s`),
    and for how long it had the turn in the present iteration before they came (`inside_s`).

    A job without the turn says whether it has emptied the cache of its allocator (`emptied`). If the header's `empties`
    is set, such a job empties its cache before another job may allocate, and no turn is cut: there is memory for one
    iteration only. A job that waits inside an iteration by then keeps that, and empties its cache at its boundary.
    """

    _fields_ = (
        ("pid", ctypes.c_int32),
        ("seat", ctypes.c_int32),
        ("grant", ctypes.c_uint32),
        ("stop", ctypes.c_uint32),
        ("out_of_memory", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("ask", ctypes.c_uint32),
        ("back", ctypes.c_uint32),
        ("owner", ctypes.c_uint32),
        ("goal", ctypes.c_uint32),
        ("fused", ctypes.c_uint32),
        ("emptied", ctypes.c_uint32),
        ("parked", ctypes.c_uint32),
        ("barred", ctypes.c_uint32),
        ("most_batch", ctypes.c_uint32),
        ("by_steps", ctypes.c_uint32),
        ("cut", ctypes.c_uint32),
        ("cuts", ctypes.c_uint32),
        ("cap_bytes", ctypes.c_uint64),
        ("limited_bytes", ctypes.c_uint64),
        ("peak_bytes", ctypes.c_uint64),
        ("kept_bytes", ctypes.c_uint64),
        ("weight", ctypes.c_double),
        ("service_s", ctypes.c_double),
        ("since_s", ctypes.c_double),
        ("balance_s", ctypes.c_double),
        ("held_s", ctypes.c_double),
        ("waited_s", ctypes.c_double),
        ("longest_wait_s", ctypes.c_double),
        ("handovers", ctypes.c_uint64),
        ("iterations", ctypes.c_uint64),
        ("eval_iterations", ctypes.c_uint64),
        ("first_s", ctypes.c_double),
        ("last_s", ctypes.c_double),
        ("waited_at_first_s", ctypes.c_double),
        ("waited_at_last_s", ctypes.c_double),
        ("warm_iterations", ctypes.c_uint64),
        ("iteration_s", ctypes.c_double),
        ("longest_iteration_s", ctypes.c_double),
        ("cpu_s", ctypes.c_double),
        ("due_s", ctypes.c_double),
        ("answer_s", ctypes.c_double),
        ("cut_asked_s", ctypes.c_double),
        ("cut_s", ctypes.c_double),
        ("inside_s", ctypes.c_double),
        ("reason", ctypes.c_char * REASON_BYTES),
    )

    @property
    def is_parked(self) -> bool:
        """Whether the job gets no turn since it is parked, or about to be."""
        return bool(self.parked) and not (self.parked == ParkRequest.ASKED and self.cut == CutState.INSIDE)

    @property
    def is_taken(self) -> bool:
        """Whether another job has taken the turn while the script slept, and the job has not asked for it again."""
        return bool(self.seat == SlotState.AWAY and self.cut == CutState.INSIDE)

    def serviced_s(self, held_s: float) -> float:
        """Service (s) of the job, with that of the present turn, which it has had for `held_s`."""
        return float(self.service_s + held_s / (self.weight or 1.0))

    def silent_s(self, now_s: float) -> float:
        """Time (s) without an end of an iteration, for a job that has the turn or from which it was taken."""
        return float(now_s - max(self.last_s, self.since_s) + self.inside_s)

    def process(self) -> tuple[int, bool]:
        """Process id of the job (0: none yet, or none any more), and whether the job shares the process with others.

        Both values are of one moment. Otherwise a job that ends between two reads would seem to have its process alone,
        and would get the processor time of all jobs that the process ever ran.
        """
        pid, fused = self.pid, bool(self.fused)
        return (pid, fused) if self.pid == pid else (0, False)


class TableLayout(ctypes.Structure):
    """The whole table."""

    _fields_ = (("header", Header), ("slots", Slot * SLOTS))
