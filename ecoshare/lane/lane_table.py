"""The table of a lane, in memory that its jobs, their supervisor and the controller share.

::

    header   who holds the turn, who wants it most, who alone may have it, the quantum
    slot 0   claim (written by the controller) │ state and counters (written by the job)
    slot 1   ...

Every change is made under the table's lock, which the kernel drops when its owner dies, and becomes valid with one
store of one word; so a process killed at any point leaves a table that `free` can mend. The holder is that word: a
job that dies with the turn leaves its slot's number there, and the supervisor grants the turn again.

A job that goes on in another lane has a slot in each for a while. It is in the old one until that is empty, which is
one word again:

    lane 0, slot 2   HOLDING, goal: lane 1, slot 0   │   EMPTY     turn granted to the next
    lane 1, slot 0   AWAY, pid 0                     │   AWAY, pid and counters of the job
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path

from ecoshare.core.turns import (
    WAIT_PER_JOB_S,
    Contender,
    early_at_s,
    next_holder,
    quantum_s,
    service_on_return_s,
    successor,
)
from ecoshare.lane import futex
from ecoshare.lane.mapping import mapped
from ecoshare.lane.own_file import OwnFile
from ecoshare.lane.table_lock import TableLock

SLOTS = 64
"""Most jobs in one lane."""

REFILL_AT_FIRST_S = 0.0025
"""What a hand-over is taken to cost until it has been measured: the first quanta are long rather than wasteful."""

NOBODY = -1
ANYBODY = -2
NO_RANK = 2**31 - 1
"""Rank of nobody: above every rank that the controller sends."""

AT_ONCE = -(2**31)
"""Rank of somebody for whom every holder makes room at its next boundary."""

NO_GOAL = 0
UNREACHABLE = 1
"""Goal of a job that was asked to move and cannot: it stays."""

_MAGIC = 0x45434F36  # changes with the layout

_KEPT = (
    "pid",
    "rank",
    "weight",
    "out_of_memory",
    "held_s",
    "waited_s",
    "longest_wait_s",
    "handovers",
    "iterations",
    "eval_iterations",
    "first_s",
    "last_s",
    "waited_at_first_s",
    "waited_at_last_s",
    "warm_iterations",
    "iteration_s",
    "longest_iteration_s",
)
"""What a job keeps where it goes on in another lane: its claim, until the controller sends another, and what it has
done. Its service is that of a newcomer, and what it was asked to do has been written to both slots."""


class SlotState(IntEnum):
    """What the job of a slot is doing, as far as the turn is concerned."""

    EMPTY = 0
    """Nobody is here; its job has ended, or is where its goal is."""
    AWAY = 1
    """It neither has nor wants the turn: it starts, loads data, or ends."""
    WAITING = 2
    HOLDING = 3


class BoundaryRequest(IntEnum):
    """What the controller asks of a job at its next boundary, or the job's answer."""

    NOTHING = 0
    OBSERVE = 1
    """Observe the memory over the next iterations, and write down what was seen."""
    OBSERVED = 2
    """It is written; the job stays at its boundary until the controller has looked at it."""
    FLUSH = 3
    """Write the trace."""


class Header(ctypes.Structure):
    """State of the lane as a whole. Times are CLOCK_MONOTONIC seconds, which all processes share."""

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("holder", ctypes.c_int32),
        ("epoch", ctypes.c_uint64),
        ("waiting_rank", ctypes.c_int32),
        ("used", ctypes.c_int32),
        ("only", ctypes.c_int32),
        ("pinned", ctypes.c_uint32),
        ("quantum_s", ctypes.c_double),
        ("early_at_s", ctypes.c_double),
        ("wait_per_job_s", ctypes.c_double),
        ("bound_s", ctypes.c_double),
        ("turn_s", ctypes.c_double),
        ("handed_s", ctypes.c_double),
        ("virtual_s", ctypes.c_double),
        ("latency_s", ctypes.c_double),
        ("refill_s", ctypes.c_double),
        ("handovers", ctypes.c_uint64),
    )


class Slot(ctypes.Structure):
    """One job's claim, state and counters.

    While the job holds its turn, the time that it has held it is `balance_s` and the present time; otherwise `held_s`.
    So one store of `seat` turns the one into the other, and nobody who reads it, or dies, counts a turn twice.

    A fused job shares its process (`pid`) with others, and so counts the processor time of its turns (`cpu_s`) itself.
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
    )

    def process(self) -> tuple[int, bool]:
        """The job's process (0: none yet, or none any more) and whether the job shares it with others.

        Both are of one moment: a job that ends between two reads would pass for the only one of a process whose
        processor time is that of all jobs that it ever ran.
        """
        pid, fused = self.pid, bool(self.fused)
        return (pid, fused) if self.pid == pid else (0, False)


class _Layout(ctypes.Structure):
    _fields_ = (("header", Header), ("slots", Slot * SLOTS))


def lane_path(folder: Path, lane: int) -> Path:
    """The table of a lane, in the folder of those of its run."""
    return folder / f"lane{lane}"


class LaneTable:
    """A mapping of one lane's table."""

    header: Header
    slots: list[Slot]

    def __init__(self, path: str | Path) -> None:
        """Map the table at `path`.

        Raises:
            OSError: It cannot be opened.
            ValueError: It is not a table of this version.
        """
        self.path = os.fspath(path)
        self._file = OwnFile(self.path, os.O_RDWR)
        layout = _Layout.from_buffer(mapped(self._file.number(), ctypes.sizeof(_Layout)))
        self.header, self.slots = layout.header, list(layout.slots)  # made once: 0.3 us for each look otherwise
        if self.header.magic != _MAGIC:
            raise ValueError(f"{self.path} is not a lane table of this version of ecoshare")
        self._grants = [ctypes.addressof(slot) + Slot.grant.offset for slot in self.slots]
        self._lock = TableLock(self._file)

    @classmethod
    def create(cls, path: Path, wait_per_job_s: float = WAIT_PER_JOB_S) -> LaneTable:
        """Make an empty table at `path`, which must not exist.

        Raises:
            OSError: It exists, or there is no room.
        """
        layout = _Layout()
        layout.header.magic = _MAGIC
        layout.header.holder = NOBODY
        layout.header.waiting_rank = NO_RANK
        layout.header.only = ANYBODY
        layout.header.early_at_s = math.inf
        layout.header.wait_per_job_s = wait_per_job_s
        layout.header.refill_s = REFILL_AT_FIRST_S
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if os.write(handle, bytes(layout)) < ctypes.sizeof(layout):  # to look beyond the end of the file would kill
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        finally:
            os.close(handle)
        return cls(path)

    def close(self) -> None:
        """Close the file; the mapping stays until this object goes."""
        self._file.close()

    def tell_of_hung(self, on_hung: Callable[[int], None]) -> None:
        """From now on wait for the lock a second at a time, and tell which process was stopped while it had it."""
        self._lock.on_hung = on_hung

    def stopped_owner(self) -> int | None:
        """The process that has the lock, where it was stopped (SIGSTOP, a debugger); None else."""
        return self._lock.stopped_owner()

    def locked(self) -> TableLock:
        """Exclude the other threads and processes, as long as the context that is returned lasts."""
        return self._lock

    # Claims: the controller's side

    def seat(self, index: int, owner: int = 0) -> None:
        """Prepare an empty slot for a job that is about to start, or to come from another lane.

        Args:
            owner: Tells its seats from all others that the slot ever has: who frees it late frees nobody else's.
        """
        with self.locked():
            slot = self.slots[index]
            ctypes.memset(ctypes.addressof(slot), 0, ctypes.sizeof(Slot))
            slot.owner = owner
            slot.weight = 1.0
            slot.seat = SlotState.AWAY
            self.header.used = max(self.header.used, index + 1)

    def claim(self, claims: dict[int, tuple[int, float]]) -> None:
        """Set rank and weight of the slots given."""
        with self.locked():
            for index, (rank, weight) in claims.items():
                self.slots[index].rank, self.slots[index].weight = rank, weight
            self.refresh()

    def reserve(self, only: int) -> None:
        """Let one slot alone have the turn, `NOBODY`, or `ANYBODY` again; a holder keeps it until its next boundary."""
        with self.locked():
            self.header.only = only
            chosen = None
            if self.header.holder == NOBODY:
                chosen = self.choose(time.monotonic())
                self.grant(chosen)
            else:
                self.refresh()
        self.wake(chosen)

    def pin(self, pinned: bool) -> None:
        """Keep everybody in this lane, whatever goal he has, or let them go again; who is leaving has left before."""
        with self.locked():
            self.header.pinned = pinned
            going = [index for index in range(self.header.used) if self.slots[index].goal > UNREACHABLE]
            for index in going:
                self.slots[index].grant += 1
        for index in going:
            self.wake(index)

    # The turn: the jobs' and the supervisor's side

    def contenders(self) -> Iterator[Contender]:
        """Jobs that want the turn, may have it, and do not."""
        holder = self.header.holder
        for index in range(self.header.used):
            slot = self.slots[index]
            if slot.seat == SlotState.WAITING and index != holder and self.admits(index):
                yield Contender(index, slot.rank, slot.service_s, slot.since_s, bool(slot.back))

    def admits(self, index: int) -> bool:
        """Whether a slot may have the turn: all may, unless it is reserved."""
        return self.header.only in (ANYBODY, index)

    def choose(self, now_s: float) -> int | None:
        """The slot that gets the turn next, of those that wait; the caller holds the lock."""
        return next_holder(self.contenders(), now_s, self.header.turn_s, self.header.bound_s)

    def succeed(self, holder: Contender, used_up: bool, now_s: float) -> int | None:
        """The slot that has the turn after a boundary of its holder; the caller holds the lock."""
        if not self.admits(holder.slot):
            return self.choose(now_s)
        return successor(holder, self.contenders(), used_up, now_s, self.header.turn_s, self.header.bound_s)

    def grant(self, index: int | None) -> None:
        """Give the turn to a slot, or to nobody; the caller holds the lock."""
        header = self.header
        header.handed_s = time.monotonic()
        header.epoch += 1
        if index is None:
            header.holder = NOBODY
        else:
            # The word that the waiter sleeps on changes last: it reads that word first, then the holder, so it either
            # sees itself as the holder or does not fall asleep.
            header.holder = index
            self.slots[index].grant += 1
            header.handovers += 1
        self.refresh()

    def wake(self, index: int | None) -> None:
        """Wake the process that waits in a slot."""
        if index is not None:
            futex.wake(self._grants[index])

    def sleep(self, index: int, seen: int, timeout_s: float) -> None:
        """Sleep until the slot is granted the turn, counted from when its `grant` was `seen`."""
        futex.wait(self._grants[index], seen, timeout_s)

    def level(self, index: int, now_s: float) -> None:
        """Bring a newcomer's or returner's service level with those present; the caller holds the lock."""
        slot = self.slots[index]
        present = [
            other
            for place, other in enumerate(self.slots[: self.header.used])
            if place != index and other.seat in (SlotState.WAITING, SlotState.HOLDING)
        ]
        present_s = [
            other.service_s + ((now_s - other.since_s) / other.weight if other.seat == SlotState.HOLDING else 0.0)
            for other in present
        ]
        turn_s = self.header.turn_s / min((other.weight for other in present), default=1.0)
        # Where nobody is present, the service that the last holder had: a newcomer must not catch up on those away.
        slot.service_s = service_on_return_s(
            slot.service_s, present_s or [self.header.virtual_s], turn_s if slot.back else 0.0
        )

    def free(self, index: int, owner: int = 0) -> None:
        """Empty the slot of a process that is gone; where it held the turn, grant it again.

        Nothing where the slot has another owner by now.
        """
        with self.locked():
            slot, holder = self.slots[index], NOBODY
            if slot.owner == owner:
                slot.seat = SlotState.EMPTY  # first: who reads counters looks at it after them
                ctypes.memset(ctypes.addressof(slot), 0, ctypes.sizeof(Slot))
                self.pass_on(index)
                holder = self.header.holder
        if holder != NOBODY:  # though it had the turn before: the one that is gone may have died before waking it
            self.wake(holder)

    def pass_on(self, index: int) -> int | None:
        """Grant what an empty slot had, to the one that is told if any; the caller holds the lock."""
        if self.header.only == index:
            self.header.only = ANYBODY
        if self.header.holder not in (index, NOBODY):
            self.refresh()
            return None
        chosen = self.choose(time.monotonic())
        self.grant(chosen)
        return chosen

    def stop(self, index: int, owner: int = 0) -> None:
        """Ask the job of a slot to end at its next boundary, and wake it if it waits; as `free` for the owner."""
        with self.locked():
            if self.slots[index].owner == owner:
                self.slots[index].stop = 1
                self.slots[index].grant += 1
        self.wake(index)

    # Moves from lane to lane

    def send(self, index: int, lane: int, slot: int, owner: int = 0) -> None:
        """Ask the job of a slot to go on in a slot of another lane; wake it if it waits; as `free` for the owner."""
        with self.locked():
            if self.slots[index].owner == owner:
                self.slots[index].goal = UNREACHABLE + 1 + lane * SLOTS + slot
                self.slots[index].grant += 1
        self.wake(index)

    def goal(self, index: int) -> tuple[int, int] | None:
        """Lane and slot to which the job of a slot is to go now; None where it stays."""
        slot = self.slots[index]
        if slot.goal <= UNREACHABLE or slot.stop or self.header.pinned:
            return None
        lane, place = divmod(slot.goal - UNREACHABLE - 1, SLOTS)
        return lane, place

    def copy(self, index: int, there: Slot) -> None:
        """Write what the job of a slot keeps to one of another lane, where nobody else writes it yet."""
        here = self.slots[index]
        for name in _KEPT:
            setattr(there, name, getattr(here, name))

    def refresh(self) -> None:
        """Renew what a holder reads at each boundary without the lock; the caller holds it.

        That is the rank of the most urgent job that waits, the quantum, and the service beyond which the holder makes
        room for one that was away.
        """
        header, holder = self.header, self.header.holder
        jobs, longest_s, waiting_rank, back = 0, 0.0, NO_RANK, False
        for index in range(header.used):
            slot = self.slots[index]
            seat = slot.seat
            if seat != SlotState.EMPTY:
                jobs += 1
                longest_s = max(longest_s, slot.longest_iteration_s)
                if seat == SlotState.WAITING and index != holder and self.admits(index):
                    waiting_rank = min(waiting_rank, slot.rank)
                    back = back or bool(slot.back)
        cost_s = header.latency_s + max(0.0, header.refill_s)
        header.quantum_s = quantum_s(jobs, cost_s, longest_s, header.wait_per_job_s)
        header.turn_s = header.quantum_s + longest_s + cost_s
        header.bound_s = jobs * header.wait_per_job_s
        header.waiting_rank = waiting_rank if holder == NOBODY or self.admits(holder) else AT_ONCE
        header.early_at_s = math.inf
        if back and holder != NOBODY:
            header.early_at_s = early_at_s(self.slots[holder].rank, self.contenders())
