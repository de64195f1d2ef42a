"""The table of a lane, in memory that its jobs, their supervisor and the controller share.

::

    header   holder of the turn, most urgent rank that waits, only slot that may have the turn, quantum,
             whether caches are emptied at a hand-over
    slot 0   claim (written by the controller) │ state and counters (written by the job)
    slot 1   ...

Every change is made under the table's lock, which the kernel drops when its owner dies. A change becomes valid with one
store of one word, so a process killed at any point leaves a table that `free` can mend. The holder is such a word: a
job that dies with the turn leaves its slot's number there, and the supervisor grants the turn again.

A job that moves to another lane has a slot in each lane for a while. The job is in the old slot until that is empty,
which is one word again:

    lane 0, slot 2   HOLDING, goal: lane 1, slot 0   │   EMPTY     turn granted to the next
    lane 1, slot 0   AWAY, pid 0                     │   AWAY, pid and counters of the job
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

from ecoshare.core.turns import (
    FIRST_CUT_S,
    WAIT_PER_JOB_S,
    Contender,
    CuttableTurn,
    cut_at_s,
    early_at_s,
    next_holder,
    quantum_s,
    service_on_return_s,
    stretch_s,
    successor,
)
from ecoshare.lane.tables import shared_memory
from ecoshare.lane.tables.shared_memory import OwnFile, TableLock, create_file, mapped
from ecoshare.lane.tables.table_layout import (
    ANY_SLOT,
    AT_ONCE,
    KEPT,
    MAGIC,
    NO_GOAL,
    NO_RANK,
    NO_SLOT,
    REFILL_AT_FIRST_S,
    SLOTS,
    UNREACHABLE,
    WAIT_BOUNDS_S,
    CutState,
    Header,
    ParkRequest,
    Slot,
    SlotState,
    TableLayout,
)

_BEGINS_WITHIN_S = 0.05
"""Time (s) within which a job that was granted the turn goes on."""


def lane_path(folder: Path, lane: int) -> Path:
    """Path of a lane's table, in the folder of its run's tables."""
    return folder / f"lane{lane}"


class LaneTable:
    """Memory-mapped table of one lane."""

    header: Header
    slots: list[Slot]

    def __init__(self, path: str | Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Map the table at `path`.

        Args:
            clock_s: Returns the time (s) on the monotonic clock.

        Raises:
            OSError: If the file cannot be opened.
            ValueError: If the file is not a table of this version.
        """
        self.path = os.fspath(path)
        self._clock_s = clock_s
        self._file = OwnFile(self.path, os.O_RDWR)
        layout = TableLayout.from_buffer(mapped(self._file.number(), ctypes.sizeof(TableLayout)))
        self.header, self.slots = layout.header, list(layout.slots)  # made once: saves 0.3 us at each look
        self._waits = layout.header.waits
        if self.header.magic != MAGIC:
            raise ValueError(f"{self.path} is not a lane table of this version of ecoshare")
        self._grants = [ctypes.addressof(slot) + Slot.grant.offset for slot in self.slots]
        self._lock = TableLock(self._file)

    @classmethod
    def create(
        cls, path: Path, wait_per_job_s: float = WAIT_PER_JOB_S, clock_s: Callable[[], float] = time.monotonic
    ) -> LaneTable:
        """Make an empty table at `path`, which must not exist.

        Raises:
            OSError: If the file exists, or there is no room.
        """
        layout = TableLayout()
        layout.header.magic = MAGIC
        layout.header.holder = NO_SLOT
        layout.header.waiting_rank = NO_RANK
        layout.header.only = ANY_SLOT
        layout.header.early_at_s = layout.header.latest_s = math.inf
        layout.header.wait_per_job_s = wait_per_job_s
        layout.header.refill_s = REFILL_AT_FIRST_S
        create_file(path, layout)
        return cls(path, clock_s)

    def close(self) -> None:
        """Close the file; the mapping stays until this object goes."""
        self._file.close()

    def tell_of_hung(self, on_hung: Callable[[int], None]) -> None:
        """Look for a stopped owner after each second of a wait for the lock. Call `on_hung` with its process id."""
        self._lock.on_hung = on_hung

    def stopped_owner(self) -> int | None:
        """Process id of the lock's owner, if it was stopped (SIGSTOP, a debugger); else None."""
        return self._lock.stopped_owner()

    def free_lock(self) -> None:
        """Give the lock up if an exception in a signal handler of the script has left it to this thread."""
        self._lock.free()

    def locked(self) -> TableLock:
        """Context manager of the critical section: it excludes all other threads and processes."""
        return self._lock

    # Claims: the controller's side

    def seat(self, index: int, owner: int = 0) -> None:
        """Prepare an empty slot for a job that is about to start, or to come from another lane.

        Args:
            owner: Id of this use of the slot. A late `free` with the id of an earlier use has no effect.
        """
        with self.locked():
            slot = self.slots[index]
            ctypes.memset(ctypes.addressof(slot), 0, ctypes.sizeof(Slot))
            slot.owner = owner
            slot.weight = 1.0
            slot.seat = SlotState.AWAY
            self.header.used = max(self.header.used, index + 1)

    def claim(self, claims: dict[int, tuple[int, float]]) -> None:
        """Set the rank and weight of each given slot."""
        with self.locked():
            for index, (rank, weight) in claims.items():
                self.slots[index].rank, self.slots[index].weight = rank, weight
            self.refresh()

    def reserve(self, only: int) -> None:
        """Reserve the turn. A holder keeps the turn until its next boundary.

        Args:
            only: Slot that alone may have the turn; -1 for no slot, -2 for any slot again.
        """
        with self.locked():
            self.header.only = only
            chosen = self.grant_if_free(self._clock_s())
            if only >= 0:
                self.slots[only].grant += 1  # it may let the turn be cut
        self.wake(chosen)
        self.wake(only if only >= 0 else None)

    def pin(self, pinned: bool) -> None:
        """Keep all jobs in this lane whatever their goals, or let them move again.

        A job that is about to move has moved when this returns, or stays.
        """
        with self.locked():
            self.header.pinned = pinned
            going = [index for index in range(self.header.used) if self.slots[index].goal > UNREACHABLE]
            for index in going:
                self.slots[index].grant += 1
        for index in going:
            self.wake(index)

    def set_caching(self, is_kept: bool) -> None:
        """Let jobs keep the caches of their allocators while they wait, or let them empty the caches.

        The next hand-over follows the new rule. Jobs that wait with a cache are woken to empty it.
        """
        waiting = []
        with self.locked():
            if self.header.empties == (not is_kept):
                return
            self.header.empties = not is_kept
            if not is_kept:
                waiting = [index for index in range(self.header.used) if self._has_idle_cache(index)]
            for index in waiting:
                self.slots[index].grant += 1
            self.refresh()
        for index in waiting:
            self.wake(index)

    @property
    def caches_are_emptied(self) -> bool:
        """Whether no job but the holder of the turn may have a cache."""
        with self.locked():
            return not any(map(self._has_idle_cache, range(self.header.used)))

    def _has_idle_cache(self, index: int) -> bool:
        """Whether a job may have a cache while another job has the turn. The caller holds the lock."""
        slot, holder = self.slots[index], self.header.holder
        if slot.seat in (SlotState.EMPTY, SlotState.HOLDING) or slot.emptied or self.shares_process(index, holder):
            return False  # one that was cut is not emptied, since it keeps an iteration
        if not slot.fused:
            return bool(slot.handovers)
        return any(self.slots[each].handovers for each in range(self.header.used) if self.shares_process(index, each))

    def note_emptied(self, index: int, emptied: bool) -> None:
        """Note whether the cache of the process of a slot is empty. It is that of all jobs of the process."""
        self.slots[index].emptied = emptied
        if self.slots[index].fused:
            for other in range(self.header.used):
                if self.shares_process(index, other):
                    self.slots[other].emptied = emptied

    def shares_process(self, index: int, other: int) -> bool:
        """Whether the jobs of two slots have one process, and so one allocator. A slot shares one with itself."""
        if other < 0:
            return False
        return index == other or bool(self.slots[index].pid == self.slots[other].pid != 0)

    def park(self, index: int, owner: int = 0) -> None:
        """Let the job of a slot have no turn from its next boundary on, and get ready. `owner` works as in `free`."""
        with self.locked():
            if self.slots[index].owner == owner:
                self.slots[index].parked = ParkRequest.ASKED
                self.slots[index].grant += 1
                self.refresh()
        self.wake(index)

    def tell_moved(self, index: int, owner: int = 0) -> None:
        """Let the job of a slot reserve the addresses of its memory, which is moved. `owner` works as in `free`."""
        with self.locked():
            if self.slots[index].owner == owner and self.slots[index].parked == ParkRequest.READY:
                self.slots[index].parked = ParkRequest.MOVED
                self.slots[index].grant += 1
        self.wake(index)

    def unpark(self, index: int, owner: int = 0) -> None:
        """Let the job of a slot have turns again. `owner` works as in `free`.

        The time for which it was parked counts as waited, but not as one long wait. The job joins the jobs present with
        as much service as they have.
        """
        chosen = None
        with self.locked():
            slot, now_s = self.slots[index], self._clock_s()
            if slot.owner == owner and slot.parked:
                slot.parked = ParkRequest.NOTHING
                slot.grant += 1  # it may sleep alone
                if slot.seat == SlotState.WAITING:
                    slot.waited_s += now_s - slot.since_s
                    slot.since_s = now_s
                    self.level(index, now_s)
                chosen = self.grant_if_free(now_s)
        self.wake(index)
        self.wake(chosen)

    def unbar(self, index: int) -> None:
        """Let the rank of a slot have its turn: the rank before it has its own."""
        with self.locked():
            self.slots[index].barred = 0
            chosen = self.grant_if_free(self._clock_s())
        self.wake(chosen)

    # The turn: the jobs' and the supervisor's side

    def contenders(self) -> Iterator[Contender]:
        """Jobs that want the turn, may have it, and do not have it."""
        holder = self.header.holder
        for index in range(self.header.used):
            slot = self.slots[index]
            if slot.seat == SlotState.WAITING and index != holder and self.admits(index):
                yield self.contender(index, slot.service_s, slot.since_s)

    def contender(self, index: int, service_s: float, since_s: float) -> Contender:
        """Job of a slot, with its service and since when it waits."""
        slot = self.slots[index]
        needs_s = slot.answer_s if slot.due_s else slot.longest_iteration_s
        return Contender(index, slot.rank, service_s, since_s, bool(slot.back), needs_s, slot.due_s or math.inf)

    def admits(self, index: int) -> bool:
        """Whether a slot may have the turn: it is not reserved for another, and the job neither parked nor barred."""
        slot, header = self.slots[index], self.header
        saves = slot.stop and slot.cut == CutState.INSIDE  # it was asked to end, and may be amid a checkpoint
        is_open = saves or not header.closed
        return bool(is_open and header.only in (ANY_SLOT, index) and not slot.is_parked and not slot.barred)

    def choose(self, now_s: float) -> int | None:
        """Slot that gets the turn next, among those that wait; None if none waits. The caller holds the lock."""
        return next_holder(self.contenders(), now_s, self.header.turn_s, self.header.bound_s)

    def succeed(self, holder: Contender, used_up: bool, now_s: float) -> int | None:
        """Slot that has the turn after a boundary of its holder; None if none may. The caller holds the lock."""
        if not self.admits(holder.slot):
            return self.choose(now_s)
        return successor(holder, self.contenders(), used_up, now_s, self.header.turn_s, self.header.bound_s)

    def cut_at_s(self, index: int, now_s: float) -> float:
        """Time (s) from which the turn is to be cut for the job that waits in a slot; infinity if it is not to be."""
        slot = self.slots[index]
        if not self.admits(index):
            return math.inf
        return self._cut_for(self.contender(index, slot.service_s, slot.since_s), now_s)

    def _cut_for(self, waiting: Contender, now_s: float) -> float:
        header = self.header
        held = self.slots[header.holder] if header.holder != NO_SLOT else None
        if held is None or held.cut == CutState.NEVER or held.stop or header.empties:
            return math.inf  # one that was asked to end may be saving
        next_s = math.inf
        if held.last_s:  # waits in the present iteration are no part of it
            next_s = held.last_s + held.waited_s - held.waited_at_last_s + held.longest_iteration_s
        rank = held.rank if self.admits(header.holder) else NO_RANK
        turn = CuttableTurn(rank, held.since_s, next_s, held.cut_s or FIRST_CUT_S)
        return cut_at_s(turn, waiting, now_s, header.quantum_s, header.bound_s)

    def close_turns(self, is_closed: bool) -> None:
        """Let no job have the turn, or let them have it again. The holder keeps it to its boundary, or to a cut."""
        chosen = None
        with self.locked():
            self.header.closed, now_s = is_closed, self._clock_s()
            for slot in self.slots[: self.header.used] if not is_closed else ():
                if slot.seat == SlotState.WAITING:  # the wait for other runs is no wait for the jobs of this lane
                    slot.waited_s += now_s - slot.since_s
                    slot.since_s = now_s
            self.refresh()
            if not is_closed:
                chosen = self.grant_if_free(now_s)
        self.wake(chosen)

    @property
    def wants_turn(self) -> bool:
        """Whether a job has the turn or waits for it, and could have it if the lane is open."""
        return any(
            slot.seat == SlotState.HOLDING
            or (
                slot.seat == SlotState.WAITING
                and self.header.only in (ANY_SLOT, index)
                and not (slot.is_parked or slot.barred)
            )
            for index, slot in enumerate(self.slots[: self.header.used])
        )

    def let_save(self, index: int) -> None:
        """Let the job of a slot have a turn in a closed lane, if it was asked to end inside an iteration."""
        chosen = None
        with self.locked():
            if self.header.closed and self.header.holder == NO_SLOT and self.admits(index):
                chosen = self.grant_if_free(self._clock_s())
        self.wake(chosen)

    def ask_cut_to_close(self, since_s: float) -> int:
        """Ask the holder to hand the turn over inside its iteration, if no boundary comes in time.

        Args:
            since_s: Time (s) since when the lane is closed.

        Returns:
            Process to be told with the signal `cuts.CUT`; 0 for none.
        """
        with self.locked():
            now_s = self._clock_s()
            if self._cut_for(Contender(NO_SLOT, -1, 0.0, since_s), now_s) > now_s:
                return 0
            return self._ask(now_s)[1]

    def ask_cut(self, index: int) -> tuple[float, int]:
        """Ask the holder to hand the turn over inside its iteration, if it is time, for the job in a slot.

        Returns:
            Time (s) for which the holder has been asked, and the process to be told with the signal `cuts.CUT`; 0 for
            none.
        """
        with self.locked():
            now_s = self._clock_s()
            return self._ask(now_s) if self.cut_at_s(index, now_s) <= now_s else (0.0, 0)

    def _ask(self, now_s: float) -> tuple[float, int]:
        """Ask the holder to hand over inside its iteration. The caller holds the lock."""
        held = self.slots[self.header.holder]
        if held.seat != SlotState.HOLDING:  # it has been granted the turn, and does not run yet
            is_late = now_s - self.header.handed_s > _BEGINS_WITHIN_S  # an exception may have ended its wait
            return 0.0, int(held.pid) if is_late else 0
        if held.cut == CutState.READY:
            held.cut_asked_s = now_s
            held.cut = CutState.ASKED
        return now_s - held.cut_asked_s, int(held.pid)

    def take_over(self, index: int, pid: int) -> bool:
        """Take the turn from a holder that was asked for a cut and sleeps, for the job in a slot that waits.

        The holder's signal handler, or a boundary, has it wait for its turn again. Return whether the turn was taken.

        Args:
            index: Slot of the job that waits.
            pid: Process of the holder that sleeps.
        """
        with self.locked():
            holder, now_s = self.header.holder, self._clock_s()
            if holder == NO_SLOT or self.cut_at_s(index, now_s) > now_s:
                return False
            held = self.slots[holder]
            if held.pid != pid or held.seat != SlotState.HOLDING or held.cut != CutState.ASKED:
                return False
            self.account(holder, now_s)
            held.inside_s = held.silent_s(now_s)
            held.since_s = now_s
            held.cuts += 1
            held.cut, held.seat = CutState.INSIDE, SlotState.AWAY
            chosen = self.choose(now_s)
            self.grant(chosen)
        self.wake(chosen)
        return True

    def account(self, index: int, now_s: float) -> None:
        """Account for the turn of a slot until now. The caller holds the lock."""
        slot, header = self.slots[index], self.header
        slot.held_s = slot.balance_s + now_s
        slot.service_s = slot.serviced_s(now_s - slot.since_s)
        header.virtual_s = max(header.virtual_s, slot.service_s)

    def tell_of_turn(self, index: int) -> None:
        """Let the jobs that wait look when the turn that begins in a slot is to be cut, if that is to be expected."""
        longest_s = self.slots[index].longest_iteration_s
        if longest_s and not self.is_long(longest_s):
            return
        with self.locked():
            waiting = [each.slot for each in self.contenders()]
            for each in waiting:
                self.slots[each].grant += 1
        for each in waiting:
            self.wake(each)

    def is_long(self, iteration_s: float) -> bool:
        """Whether iterations of this length (s) leave no quantum within the bound, so that they are to be cut."""
        return stretch_s(iteration_s, 0.0, self.header.jobs, self.header.wait_per_job_s) < iteration_s

    def grant(self, index: int | None) -> None:
        """Give the turn to a slot, or to none. The caller holds the lock."""
        header = self.header
        header.handed_s = self._clock_s()
        header.epoch += 1
        if index is None:
            header.holder = NO_SLOT
        else:
            # The word on which the waiter sleeps changes last. The waiter reads that word first and the holder second,
            # so it either sees itself as the holder or does not fall asleep.
            header.holder = index
            self.slots[index].grant += 1
            header.handovers += 1
        self.refresh()

    def note_wait(self, waited_s: float) -> None:
        """Count a turn, by the time (s) that its job has waited for it. The holder of the turn alone calls this."""
        self._waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        self.header.waited_s += waited_s

    def wake(self, index: int | None) -> None:
        """Wake the process that waits in a slot."""
        if index is not None:
            shared_memory.futex_wake(self._grants[index])

    def sleep(self, index: int, seen: int, timeout_s: float) -> None:
        """Sleep until the slot is granted the turn, for at most `timeout_s`.

        Args:
            seen: Value of the slot's `grant` that the caller has read. If it has changed, the call returns at once.
        """
        shared_memory.futex_wait(self._grants[index], seen, timeout_s)

    def sleeping_alone(self, index: int, seen: int, timeout_s: float) -> Callable[[], object]:
        """Call that sleeps as `sleep` does, while no other thread of the process runs Python."""
        return shared_memory.waiting_alone(self._grants[index], seen, timeout_s)

    def level(self, index: int, now_s: float) -> None:
        """Bring the service of a newcomer or returner level with the jobs present. The caller holds the lock."""
        slot = self.slots[index]
        present = [
            other
            for place, other in enumerate(self.slots[: self.header.used])
            if place != index and other.seat in (SlotState.WAITING, SlotState.HOLDING) and not other.parked
        ]
        present_s = [
            other.service_s + ((now_s - other.since_s) / other.weight if other.seat == SlotState.HOLDING else 0.0)
            for other in present
        ]
        turn_s = self.header.turn_s / min((other.weight for other in present), default=1.0)
        # With no job present, take the service of the last holder: a newcomer must not catch up on jobs that are away.
        slot.service_s = service_on_return_s(
            slot.service_s, present_s or [self.header.virtual_s], turn_s if slot.back else 0.0
        )

    def free(self, index: int, owner: int = 0) -> None:
        """Empty the slot of a process that is gone. If it held the turn, grant the turn again.

        The call has no effect if the slot has another owner by now.
        """
        with self.locked():
            slot, holder = self.slots[index], NO_SLOT
            if slot.owner == owner:
                slot.seat = SlotState.EMPTY  # first: readers of the counters check it after them
                ctypes.memset(ctypes.addressof(slot), 0, ctypes.sizeof(Slot))
                self.pass_on(index)
                holder = self.header.holder
        if holder != NO_SLOT:  # also an earlier holder: the dead process may have granted it the turn without waking it
            self.wake(holder)

    def grant_if_free(self, now_s: float) -> int | None:
        """Grant the turn to a job that waits, if no job has it. The caller holds the lock.

        Returns:
            Slot that was granted the turn, which the caller must wake; None if there is none.
        """
        if self.header.holder != NO_SLOT:
            self.refresh()
            return None
        chosen = self.choose(now_s)
        self.grant(chosen)
        return chosen

    def pass_on(self, index: int) -> int | None:
        """Pass on the turn and the reservation of an empty slot, if it had them. The caller holds the lock.

        Returns:
            Slot that was granted the turn, which the caller must wake; None if there is none.
        """
        if self.header.only == index:
            self.header.only = ANY_SLOT
        if self.header.holder not in (index, NO_SLOT):
            self.refresh()
            return None
        chosen = self.choose(self._clock_s())
        self.grant(chosen)
        return chosen

    def stop(self, index: int, owner: int = 0) -> None:
        """Ask the job of a slot to end at its next boundary, and wake it if it waits. `owner` works as in `free`."""
        with self.locked():
            if self.slots[index].owner == owner:
                self.slots[index].stop = 1
                self.slots[index].grant += 1
        self.wake(index)

    # Moves from lane to lane

    def send(self, index: int, lane: int, slot: int, owner: int = 0) -> None:
        """Ask the job of a slot to move to a slot of another lane; wake it if it waits. `owner` works as in `free`."""
        with self.locked():
            if self.slots[index].owner == owner:
                self.slots[index].goal = UNREACHABLE + 1 + lane * SLOTS + slot
                self.slots[index].grant += 1
        self.wake(index)

    def take_back(self, index: int, owner: int) -> bool:
        """Let the job of a slot stay, which was asked to move. Return False if it has gone, or was not asked yet."""
        with self.locked():
            slot = self.slots[index]
            if slot.owner != owner or slot.seat == SlotState.EMPTY or slot.goal <= UNREACHABLE:
                return False
            slot.goal = NO_GOAL
        return True

    def goal(self, index: int) -> tuple[int, int] | None:
        """Lane and slot to which the job of a slot must move now; None if it stays."""
        slot = self.slots[index]
        if slot.goal <= UNREACHABLE or slot.stop or self.header.pinned:
            return None
        lane, place = divmod(slot.goal - UNREACHABLE - 1, SLOTS)
        return lane, place

    def copy(self, index: int, there: Slot) -> None:
        """Copy the fields that a moving job keeps to its slot in another lane, which no other process writes yet."""
        here = self.slots[index]
        for name in KEPT:
            setattr(there, name, getattr(here, name))

    def refresh(self) -> None:
        """Update the values that a holder reads at each boundary without the lock. The caller holds the lock.

        The values are the rank of the most urgent job that waits, the quantum, the service beyond which the holder
        makes room for a job that was away, and the time at which it has to have made room for a service.
        """
        header, holder = self.header, self.header.holder
        jobs, longest_s, waiting_rank, back, latest_s = 0, 0.0, NO_RANK, False, math.inf
        first_rank, presses = NO_RANK, False
        for index in range(header.used):
            slot = self.slots[index]
            seat = slot.seat
            if seat != SlotState.EMPTY and not slot.is_parked:
                jobs += 1
                longest_s = max(longest_s, slot.longest_iteration_s)
                rank = slot.rank
                first_rank = rank if first_rank == NO_RANK else first_rank
                presses = presses or rank != first_rank or bool(slot.due_s)
                if seat == SlotState.WAITING and index != holder and self.admits(index):
                    waiting_rank = min(waiting_rank, rank)
                    back = back or bool(slot.back)
                    if slot.due_s:
                        latest_s = min(latest_s, slot.due_s - slot.answer_s)
        header.jobs, header.presses = jobs, presses
        if self.is_long(longest_s):
            longest_s = max(map(self._stretch_s, self.slots[: header.used]))
        cost_s = header.latency_s + max(0.0, header.refill_s) + (header.empty_s if header.empties else 0.0)
        header.quantum_s = quantum_s(jobs, cost_s, longest_s, header.wait_per_job_s)
        header.turn_s = header.quantum_s + longest_s + cost_s
        header.bound_s = jobs * header.wait_per_job_s
        header.waiting_rank = waiting_rank if holder == NO_SLOT or self.admits(holder) else AT_ONCE
        header.latest_s = latest_s
        header.early_at_s = math.inf
        if back and holder != NO_SLOT:
            header.early_at_s = early_at_s(self.slots[holder].rank, self.contenders())

    def _stretch_s(self, slot: Slot) -> float:
        """Time (s) for which the job of a slot keeps the others waiting beyond its quantum, at most."""
        longest_s = float(slot.longest_iteration_s) if not slot.is_parked else 0.0
        if slot.cut == CutState.NEVER or self.header.empties:
            return longest_s
        return stretch_s(longest_s, slot.cut_s or FIRST_CUT_S, self.header.jobs, self.header.wait_per_job_s)
