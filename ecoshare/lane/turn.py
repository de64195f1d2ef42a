"""A job's side of its lane's turn: take it, offer it at boundaries, leave it.

::

    A  ═══════boundary══boundary═╗                         ╔════
              no job waits       ║ quantum used up,        ║
              or quantum left    ║ drain, grant B          ║
    B                            ╚═══════════boundary══════╝

No message goes to the controller: the holder picks its successor itself, with `core.turns`.

A job that waits may ask the holder to hand the turn over inside an iteration, with a word in its slot and a signal. The
holder does so between two bytecodes of its script (`lane/cuts.py`).

If the memory of the device does not suffice for all caches, the holder empties that of its allocator before it passes
the turn on to another process. The time that this takes is learned, and lengthens the quantum.

If the controller has named a slot of another lane, the job goes on there, from a boundary or from its wait:

    lane 0, A  ═══════boundary═╗
                               ║ drain; then, under the lock of lane 0: copy the counters, empty the slot, grant B
    lane 0, B                  ╚═══════════
    lane 1, A                   ─ ─ ─ ═════    a newcomer
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ecoshare.core.turns import FIRST_CUT_S
from ecoshare.lane import processes
from ecoshare.lane.cuts import tell
from ecoshare.lane.gang_turn import GangTurn
from ecoshare.lane.own_memory import DriverAddresses
from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.tables.table_layout import (
    NO_GOAL,
    NO_RANK,
    REASON_BYTES,
    UNREACHABLE,
    CutState,
    ParkRequest,
    Slot,
    SlotState,
)
from ecoshare.lane.trace import Kind, Tracer


class Leaving(BaseException):
    """Unwinds a job that is a thread of a shared process. The job was asked to end, or needs a process of its own."""


class ThreadState(Protocol):
    """State of a job in a shared process, which is put aside while other jobs of the process have the turn.

    No code of such a job runs without the turn. So `out` is called right before the turn goes, and `back` right after
    it has come.
    """

    def out(self) -> None:
        """Put the state aside: the turn is about to be passed on."""
        ...

    def back(self) -> None:
        """Restore the state: the job has the turn."""
        ...

    def before_wake(self, slot: int | None) -> None:
        """Prepare for the wake-up of the job in a slot, which is about to be granted the turn."""
        ...

    def processor_s(self) -> float:
        """Processor time (s) of the job's turns so far."""
        ...

    def boundary(self) -> None:
        """Note that an iteration has ended.

        Raises:
            Leaving: If the job may not stay in the process.
        """
        ...

    def stop(self) -> None:
        """End the job, which was asked to end.

        Raises:
            Leaving: Unless the job ends by itself, as a service does that waits for requests.
        """
        ...


_LOOK_S = 0.002


_LOOK_AGAIN_S = 1.0
"""Time (s) after which a waiter looks for itself: the process that had to wake it may have been killed."""

_ASK_AGAIN_S = 0.004, 0.05
"""Shortest and longest time (s) after which a wish for a cut is repeated: the holder was at a place where it may not be
cut, or is inside of a long operation."""

_ASLEEP_S, _RESTLESS = 0.05, 0.05
"""Time (s) for which a holder sleeps before its turn is taken, and the part of it for which it may work: it hears the
signal meanwhile."""

_MOVED_WITHIN_S = 60.0
"""Time (s) after which a job of which the memory is being moved lets its other threads run for a moment."""

_COLD = 8
"""Iterations at the beginning of a turn that the hand-over may slow down. The first is slowed most, but caches fill and
the last holder's threads fall asleep over several (measured: 7 iterations of 18 ms, 2 to 6 % each)."""

_ENOUGH = 5
"""Warm iterations that a job must have done before its cold ones tell the cost of a hand-over."""

_SMOOTHING = 0.1
"""Weight of a new sample in the running means."""


class LaneTurn:
    """One job's claim on the turn of one lane. Not for use by two threads at once.

    Attributes:
        holding: Whether the job has the turn.
    """

    def __init__(
        self,
        table: LaneTable,
        index: int,
        trace: Tracer | None = None,
        swap: ThreadState | None = None,
        empty: Callable[[], None] = lambda: None,
        page_out: Callable[[], object] = lambda: None,
        gang: GangTurn | None = None,
        may_cut: Callable[[], bool] = lambda: False,
        on_processors: bool = False,
    ) -> None:
        """Claim with slot `index`, which the controller has prepared.

        Args:
            table: Table of the lane.
            index: Slot of the job.
            trace: Trace in which turns and iterations are marked.
            swap: State of a job that shares its process with others; None for a job alone.
            empty: Gives the memory that the allocator of this process has in reserve back to the device.
            page_out: Moves the memory of this process out of the main memory, as far as it can do so itself.
            gang: The other ranks of the job; None if it is no rank.
            may_cut: Whether the process hears the signal `cuts.CUT` in the turn that begins, and calls `cut` then.
            on_processors: Whether the lane is one of processors, so that a process that sleeps has no work there.
        """
        self._trace = trace
        self._swap = swap
        self._empty, self._page_out = empty, page_out
        self._gang = gang
        self._may_cut = may_cut
        self._on_processors = on_processors
        self._sleeper = (0, 0.0, 0.0)  # a holder that sleeps, since when it was seen to, and its processor time then
        self._addresses = DriverAddresses()
        self._table = table
        self._index = index
        self._slot = table.slots[index]
        self._place = _COLD  # position of the present iteration after the hand-over
        self._lost_s = 0.0  # time that the cold iterations of this turn have lost
        self._left_s = 0.0
        self._away_s = 0.0  # time away since the last iteration ended
        self._wanted = False  # True from `take` to `leave`
        self._cut_in: int | None = None  # thread that waits inside an iteration
        self._waited_before_s = 0.0  # waits for the same turn in lanes that the job has left since
        self._handovers_before = 0  # hand-overs in those lanes
        self._slot.fused = swap is not None
        self._slot.pid = os.getpid()

    @property
    def slot(self) -> Slot:
        """Present slot of the job, which may move to another lane."""
        return self._slot

    @property
    def holding(self) -> bool:
        """Whether the job has the turn."""
        return bool(self._slot.seat == SlotState.HOLDING)

    def take(self) -> None:
        """Wait for the turn. Return at once if the job has it."""
        if self._cut_in is not None:
            self._let_it_wait()
        if self.holding:
            return
        if self._note_taken() or not self._wanted:
            self._mark(Kind.WAITS, time.monotonic())
        self._wanted = True
        if self._slot.seat != SlotState.WAITING:  # else a signal handler of the script interrupted the wait
            self._move()
            if self._enter():
                return
        self._wait()

    def answer_by(self, due_s: float, answer_s: float) -> None:
        """Tell when (s, monotonic) the next answer of a service is due, and how long (s) it takes at most."""
        self._slot.due_s, self._slot.answer_s = due_s, answer_s

    def offer(self, drain: Callable[[], None]) -> None:
        """Offer the turn at a boundary: hand it over if the quantum is used up, or an earlier hand-over is due.

        An earlier hand-over goes to a waiting job that is more urgent, or that was away and has had less service.

        Args:
            drain: Waits until the device has finished the job's work.
        """
        if self._cut_in is not None:
            self._let_it_wait()
        if self._wanted and not self.holding:
            self.regain()
            return
        if self._slot.goal != NO_GOAL and self._move(drain):
            if self._wanted:
                self.take()
            return
        self.stop_if_asked(drain)
        if self.is_due:
            drain()
            self._pass_on()

    def cut(self, drain: Callable[[], None]) -> None:
        """Hand the turn over inside an iteration, if a job that waits has asked for that.

        The main thread calls this, or one of torch for which the main thread waits.

        Args:
            drain: Waits until the device has finished the job's work.
        """
        slot, is_lost = self._slot, self._wanted and not self.holding
        is_asked = slot.cut == CutState.ASKED and self.holding and not slot.stop
        if (is_lost or is_asked) and self._cut_in is None:
            self._cut_in = threading.get_ident()
            try:
                drain()
                self.regain() if is_lost else self._pass_on()
            except BaseException:  # a handler of the script raised it: the script goes on, and needs the turn
                self._table.free_lock()
                later = threading.Timer(_LOOK_S, tell, (os.getpid(),))
                later.daemon = True
                later.start()
                raise
            finally:
                self._cut_in = None

    def _note_taken(self) -> bool:
        """Note when the turn was taken, if it was. Return whether it was."""
        if self._slot.is_taken:
            self._left_s = self._slot.since_s
            self._mark(Kind.TURN_ENDS, self._left_s)
            return True
        return False

    def _let_it_wait(self) -> None:
        """Wait in another thread of the script until the one that was cut has its turn again."""
        while self._cut_in not in (None, threading.get_ident()):
            time.sleep(_LOOK_S)

    def end_cuts(self) -> None:
        """Let the present turn be cut no more, and wait for a signal that may be on its way."""
        with self._table.locked():
            is_asked, self._slot.cut = self._slot.cut == CutState.ASKED, CutState.NEVER
        if is_asked:
            time.sleep(_LOOK_S)

    def _pass_on(self) -> None:
        """Hand the turn over to the job that is chosen now, and wait for it, unless this one goes on."""
        table, slot, header = self._table, self._slot, self._table.header
        emptied = False
        while True:
            with table.locked():
                if self._slot.is_taken:
                    break
                if self._cut_in is not None and header.empties:  # there is no memory for two iterations any more
                    slot.cut = CutState.READY
                    return
                now_s = time.monotonic()
                held_s = now_s - slot.since_s
                used_up = held_s >= header.quantum_s or slot.cut == CutState.ASKED
                mine = table.contender(self._index, slot.serviced_s(held_s), now_s)
                if slot.cut == CutState.ASKED:  # nothing tells how long it would go on
                    mine = mine._replace(needs_s=math.inf)
                chosen = table.succeed(mine, used_up, now_s)
                if chosen == self._index and not used_up:
                    header.early_at_s = math.inf  # not in this turn, unless a job comes or goes
                    return
                if chosen == self._index:
                    self._table.account(self._index, now_s)
                    self._learn_cut(now_s)
                    slot.since_s = now_s
                    table.refresh()
                    return
                if emptied or not self._must_empty(chosen):
                    self._hand_over(chosen, used_up, emptied, now_s)
                    break
            self._empty_cache()  # without the lock, since it takes milliseconds
            emptied = True
        if self._slot.is_taken:
            self.regain()
            return
        self._mark(Kind.TURN_ENDS, now_s)
        table.wake(chosen)  # last: a woken thread of this process needs the interpreter, which this one then releases
        self._wait()

    def _learn_cut(self, now_s: float) -> None:
        """Learn how long it took from the wish for a cut to the hand-over. The caller holds the lock."""
        slot = self._slot
        if self._cut_in is not None:
            slot.inside_s = slot.silent_s(now_s)
        if slot.cut == CutState.ASKED:
            slot.cut_s = max(now_s - slot.cut_asked_s, 0.95 * (slot.cut_s or FIRST_CUT_S))
            slot.cut = CutState.READY

    @property
    def is_due(self) -> bool:
        """Whether another job may get the turn at this boundary, or the job was asked to end there."""
        slot, header = self._slot, self._table.header
        if slot.stop == 1 or header.waiting_rank == NO_RANK or slot.seat != SlotState.HOLDING:
            if slot.cut == CutState.ASKED:  # the job that asked is gone
                slot.cut = CutState.READY
            return bool(slot.stop == 1)
        if slot.cut == CutState.ASKED:
            return True
        now_s = time.monotonic()
        held_s = now_s - slot.since_s
        early = slot.serviced_s(held_s) > header.early_at_s or now_s + slot.longest_iteration_s > header.latest_s
        return bool(held_s >= header.quantum_s or early or header.waiting_rank < slot.rank)

    @property
    def may_be_cut(self) -> bool:
        """Whether the turn may have to be cut: for a service or a more urgent job, or since iterations are long."""
        slot, header = self._slot, self._table.header
        longest_s = slot.longest_iteration_s
        presses = header.presses and longest_s > 2 * FIRST_CUT_S  # else a boundary comes as soon as a cut
        may_be = slot.cut != CutState.NEVER and not header.empties
        return bool(may_be and (presses or self._table.is_long(longest_s)))

    @property
    def cut_is_asked(self) -> bool:
        """Whether `cut` has something to do: a job that waits has asked for a cut, or the turn was lost."""
        return bool(self._slot.cut == CutState.ASKED or (self._wanted and not self.holding))

    @property
    def longest_iteration_s(self) -> float:
        """Longest iteration (s) of the job of late."""
        return float(self._slot.longest_iteration_s)

    def leave_out(self, pause_s: float) -> None:
        """Leave a pause (s) out of the time of the next iteration."""
        self._away_s += pause_s

    def regain(self) -> None:
        """Take the turn if the job wants it and does not have it: a signal handler of the script ended its wait."""
        if self._wanted and not self.holding:
            self.take()

    def yield_turn(self) -> None:
        """Give up the turn, and wait for it again. The gang of this rank does so in all of its lanes.

        The turn goes to another job that waits, whatever the quantum: the rank cannot go on before the others do.
        """
        table, slot, emptied = self._table, self._slot, False
        while True:
            with table.locked():
                now_s = time.monotonic()
                slot.barred = self._gang is not None and self._gang.is_barred
                chosen = table.choose(now_s)
                if chosen is None and table.admits(self._index):
                    chosen = self._index
                if emptied or chosen == self._index or not self._must_empty(chosen):
                    self._hand_over(chosen, True, emptied, now_s)
                    break
            self._empty_cache()
            emptied = True
        self._mark(Kind.TURN_ENDS, now_s)
        table.wake(chosen)
        self._wait()

    def stop_if_asked(self, drain: Callable[[], None]) -> None:
        """End the job at a boundary if it was asked to end.

        Args:
            drain: Waits until the device has finished the job's work.
        """
        if self._slot.stop == 1:
            drain()
            self._stop()

    def _hand_over(self, chosen: int | None, used_up: bool, emptied: bool, now_s: float) -> None:
        """Pass the turn on to another slot, or to none, and wait for it again. The caller holds the lock."""
        table, slot = self._table, self._slot
        self._table.account(self._index, now_s)
        self._learn_cut(now_s)
        slot.since_s = now_s
        if emptied:
            self._table.note_emptied(self._index, True)
        slot.seat = SlotState.WAITING
        if used_up:  # a turn that was cut short has not had its full loss
            self._learn_loss()
        if self._cut_in is not None:
            slot.cuts += 1
            slot.cut = CutState.INSIDE
        self._put_aside(chosen)
        table.grant(chosen)

    def _put_aside(self, chosen: int | None) -> None:
        """Put the state of a job in a shared process aside, before the store that lets the next job there go on."""
        if self._swap is not None:
            self._swap.out()
            self._swap.before_wake(chosen)

    def _must_empty(self, chosen: int | None) -> bool:
        """Whether the cache of this process must be emptied before a slot gets the turn. The caller holds the lock."""
        if not (self._table.header.empties or self._slot.parked):
            return False
        return chosen is None or not self._table.shares_process(self._index, chosen)

    def _empty_cache(self) -> None:
        """Empty the cache, and learn how long that takes."""
        began_s = time.monotonic()
        self._empty()
        header, took_s = self._table.header, time.monotonic() - began_s
        header.empty_s += (_SMOOTHING if header.empty_s else 1.0) * (took_s - header.empty_s)

    def leave(self) -> None:
        """Give up the turn, without asking for it back yet. The device has finished the job's work."""
        table, slot = self._table, self._slot
        self._wanted, chosen, emptied = False, None, False
        if slot.seat == SlotState.AWAY:
            if self._note_taken():
                slot.cut = CutState.READY
            return
        while True:
            with table.locked():
                now_s, held = time.monotonic(), self.holding
                passes_on = table.header.holder == self._index
                chosen = table.choose(now_s) if passes_on else None
                if emptied or not held or not self._must_empty(chosen):
                    if emptied:
                        self._table.note_emptied(self._index, True)
                    if held:
                        self._table.account(self._index, now_s)
                        self._put_aside(chosen)
                    slot.seat = SlotState.AWAY
                    slot.inside_s = 0.0
                    self._left_s = now_s
                    if passes_on:
                        table.grant(chosen)
                    else:
                        table.refresh()
                    break
            self._empty_cache()
            emptied = True
        if held:
            self._mark(Kind.TURN_ENDS, now_s)
        table.wake(chosen)  # last, as in `offer`

    def count(self, evaluating: bool, by_steps: bool = False) -> None:
        """Count an iteration that has just ended, and learn its time and the cost of the hand-over before it.

        Args:
            evaluating: Whether it is one of inference.
            by_steps: Whether the training iterations of the job are steps of optimizers that step by turns.
        """
        slot, now_s = self._slot, time.monotonic()
        slot.by_steps = by_steps
        if evaluating:
            slot.eval_iterations += 1
        else:
            slot.iterations += 1
        if self._trace is not None:
            self._trace.iteration(Kind.EVAL if evaluating else Kind.TRAIN, now_s)
        waited_s = slot.waited_s
        if slot.last_s:
            took_s = now_s - slot.last_s - (waited_s - slot.waited_at_last_s)
            self._learn(took_s - self._away_s)  # time away makes no other job wait
        else:
            slot.first_s, slot.waited_at_first_s = now_s, waited_s
        slot.last_s, slot.waited_at_last_s, slot.inside_s = now_s, waited_s, 0.0
        self._away_s = 0.0
        if self._swap is not None:
            slot.cpu_s = self._swap.processor_s()

    @property
    def absence_cost_s(self) -> float:
        """Time (s) that an absence costs because the cache is emptied before it and filled after it."""
        header = self._table.header
        return header.empty_s + max(0.0, header.refill_s) if header.empties else 0.0

    @property
    def is_waited_for(self) -> bool:
        """Whether another job waits for the turn."""
        return bool(self._table.header.waiting_rank != NO_RANK)

    @property
    def asked(self) -> int:
        """Request of the controller to the job: a `BoundaryRequest`."""
        return int(self._slot.ask)

    def tell_memory(self, peak_bytes: int, kept_bytes: int) -> None:
        """Tell the controller the largest device memory of the job, and what it keeps, both without its context."""
        self._slot.peak_bytes, self._slot.kept_bytes = peak_bytes, kept_bytes

    def tell_out_of_memory(self) -> None:
        """Tell the supervisor that this process ends because it got no more memory."""
        self._slot.out_of_memory = 1

    def tell_reason(self, reason: str) -> None:
        """Tell the supervisor why the script has ended."""
        self._slot.reason = reason.encode(errors="replace")[: REASON_BYTES - 1]

    def _learn(self, took_s: float) -> None:
        slot = self._slot
        if self._place >= _COLD:
            slot.warm_iterations += 1
            slot.iteration_s += max(_SMOOTHING, 1 / slot.warm_iterations) * (took_s - slot.iteration_s)
        else:
            # Keep the sign until the mean is used, or noise would add up. Limit the loss: a checkpoint is none.
            self._lost_s += min(took_s - slot.iteration_s, slot.iteration_s + 0.01)
        self._place += 1
        # The figure decays: one slow iteration (a checkpoint, a compilation) must not bound the quantum for ever.
        slot.longest_iteration_s = max(took_s, 0.95 * slot.longest_iteration_s)

    def _learn_loss(self) -> None:
        """Add the loss of the turn's cold iterations to the mean cost of a hand-over. The turn is over."""
        if self._slot.warm_iterations >= _ENOUGH and self._place > 0:
            header = self._table.header
            header.refill_s += _SMOOTHING * (self._lost_s - header.refill_s)

    def _enter(self) -> bool:
        """Ask for the turn, for a job that neither has nor wants it. Return whether the job has it at once."""
        table, slot = self._table, self._slot
        with table.locked():
            slot.since_s = time.monotonic()
            if self._left_s:
                self._away_s += slot.since_s - self._left_s
                self._left_s = 0.0
            if slot.emptied:  # the next iterations fill the cache again
                self._place, self._lost_s = 0, 0.0
            slot.back = slot.handovers > self._handovers_before
            table.level(self._index, slot.since_s)
            slot.barred = self._gang is not None and self._gang.is_barred
            slot.seat = SlotState.WAITING
            chosen = table.grant_if_free(slot.since_s)
        if chosen == self._index:
            self._gather()
            self._begin(slot.since_s)
            return True
        table.wake(chosen)
        return False

    def _wait(self) -> None:
        while True:
            table, slot, header = self._table, self._slot, self._table.header
            table.free_lock()
            seen = slot.grant
            if header.holder == self._index:
                break
            if slot.stop == 1 and self._may_stop_waiting():
                self._stop()
            if slot.stop and header.closed and slot.cut == CutState.INSIDE:
                table.let_save(self._index)
            if slot.goal != NO_GOAL and self._move():
                if self._enter():
                    return
                continue
            is_idle = slot.cut != CutState.INSIDE and not table.shares_process(self._index, header.holder)
            if header.empties and not slot.emptied and is_idle:
                if slot.handovers or self._swap is not None:  # else the job has had no turn, and so no cache
                    self._empty_cache()
                with table.locked():
                    if not table.shares_process(self._index, header.holder):
                        self._table.note_emptied(self._index, True)
                continue
            if slot.parked == ParkRequest.ASKED and slot.cut != CutState.INSIDE:
                self._rest()
                continue
            if slot.parked == ParkRequest.READY and self._addresses.are_noted:
                self._addresses.reserve(table.sleeping_alone(self._index, seen, _MOVED_WITHIN_S))
                continue
            if slot.parked == ParkRequest.MOVED:
                self._addresses.reserve()  # again, if a signal ended the sleep before the move was over
                with table.locked():
                    if slot.parked == ParkRequest.MOVED:  # else the controller has let the job go on meanwhile
                        slot.parked = ParkRequest.RESERVED
                continue
            table.sleep(self._index, seen, min(_LOOK_AGAIN_S, self._until_cut_s()))
        self._gather()
        now_s = time.monotonic()
        waited_s = now_s - slot.since_s
        header.latency_s += _SMOOTHING * (now_s - header.handed_s - header.latency_s)
        slot.waited_s += waited_s
        slot.longest_wait_s = max(slot.longest_wait_s, self._waited_before_s + waited_s)
        self._place, self._lost_s = 0, 0.0
        self._begin(now_s)

    def _may_stop_waiting(self) -> bool:
        """Whether the job, which was asked to end, may do so while it waits for its turn.

        A fused job may not run without the turn, not even to end. One that is cut may be writing a checkpoint: it ends
        at its boundary, unless the script hears the signal itself.
        """
        return self._swap is None and (self._cut_in is None or callable(signal.getsignal(signal.SIGTERM)))

    def _until_cut_s(self) -> float:
        """Time (s) until the turn of the holder is to be cut for this job. If it is time, ask for that."""
        now_s = time.monotonic()
        until_s = self._table.cut_at_s(self._index, now_s) - now_s
        if until_s > 0.0:
            last_s = self._slot.due_s - self._slot.answer_s - now_s
            return min(until_s, last_s) if last_s > 0.0 else until_s
        asked_s, pid = self._table.ask_cut(self._index)
        if pid:
            tell(pid)
            if self._on_processors and self._sleeps(pid, asked_s, now_s) and self._table.take_over(self._index, pid):
                tell(pid)
        return min(_ASK_AGAIN_S[1], max(_ASK_AGAIN_S[0], asked_s / 8))

    def _sleeps(self, pid: int, asked_s: float, now_s: float) -> bool:
        """Whether the process of the holder has slept for a while: its main thread waits, and no other one works.

        Args:
            pid: Process of the holder.
            asked_s: Time (s) for which it has been asked to hand over. Earlier looks do not count.
            now_s: Now (s).
        """
        spent_s = processes.spent_asleep_s(pid)
        before, since_s, before_s = self._sleeper
        was_seen = pid == before and since_s >= now_s - asked_s
        if spent_s is None or not was_seen or spent_s - before_s > _RESTLESS * (now_s - since_s):
            self._sleeper = (0 if spent_s is None else pid, now_s, spent_s or 0.0)
            return False
        return now_s - since_s > _ASLEEP_S

    def _gather(self) -> None:
        """Let the other ranks of the job know that this one has its turn, and wait for theirs."""
        if self._gang is not None:
            self._gang.got_turn(lambda: bool(self._slot.stop == 1))
            self.stop_if_asked(lambda: None)

    def _rest(self) -> None:
        """Get ready to be parked. From now on this thread calls nothing of the device until it has the turn again."""
        self._empty()
        self._table.note_emptied(self._index, True)
        self._page_out()
        self._addresses.note()
        with self._table.locked():
            if self._slot.parked == ParkRequest.ASKED:  # else the controller has changed its mind
                self._slot.parked = ParkRequest.READY

    def _begin(self, now_s: float) -> None:
        slot = self._slot
        self._addresses.release()
        self._table.note_wait(self._waited_before_s + now_s - slot.since_s)
        self._waited_before_s = 0.0
        slot.handovers += 1
        slot.back = 0
        self._table.note_emptied(self._index, False)
        slot.since_s = now_s
        slot.balance_s = slot.held_s - now_s
        slot.cut = CutState.READY if self._may_cut() else CutState.NEVER
        slot.seat = SlotState.HOLDING
        if slot.cut == CutState.READY and self._table.header.waiting_rank != NO_RANK:
            self._table.tell_of_turn(self._index)
        self._mark(Kind.TURN_BEGINS, now_s)
        if self._swap is not None:
            self._swap.back()
            if slot.stop == 1:
                self._stop()

    def _move(self, drain: Callable[[], None] = lambda: None) -> bool:
        """Move to the lane that the controller has named, without the turn there. Return whether the job has moved.

        One store empties the slot here. A reader finds the job's counters here before that store, and there after it;
        they are equal by then. If the process is killed before it has passed its turn on, the supervisor does so, as
        for any job that dies with the turn.
        """
        here, slot, place = self._table, self._slot, self._index
        goal = here.goal(place)
        if goal is None or (slot.cut == CutState.INSIDE and here.header.empties):  # else two would keep an iteration
            return False
        if self._swap is not None:  # the whole process would have to move
            slot.goal = UNREACHABLE
            return False
        lane, index = goal
        try:
            table = LaneTable(lane_path(Path(here.path).parent, lane))
        except (OSError, ValueError):
            slot.goal = UNREACHABLE
            return False
        emptied = False
        if self.holding:
            drain()
            if here.header.empties:
                self._empty_cache()
                emptied = True
        there, empty = table.slots[index], int(SlotState.EMPTY)
        with here.locked():
            # The controller may have changed its mind, or asked for empty caches, since the look without the lock.
            if here.goal(place) != goal or (self.holding and here.header.empties and not emptied):
                table.close()
                return False
            now_s, held = time.monotonic(), self.holding
            waited_s = now_s - slot.since_s if slot.seat == SlotState.WAITING else 0.0
            if held:
                here.account(place, now_s)
            here.copy(place, there)
            there.emptied = emptied or slot.emptied
            there.waited_s += waited_s
            there.longest_wait_s = max(there.longest_wait_s, self._waited_before_s + waited_s)
            # No call stands between these stores, so no signal handler of the script runs between them.
            slot.seat = empty
            self._table, self._slot, self._index = table, there, index
            self._waited_before_s += waited_s
            self._handovers_before = there.handovers
            self._place, self._lost_s = _COLD, 0.0
            self._left_s = self._left_s or now_s
            chosen = here.pass_on(place)
        here.wake(chosen)
        here.close()
        if held:
            self._mark(Kind.TURN_ENDS, now_s)
        return True

    def _mark(self, kind: Kind, at_s: float) -> None:
        if self._trace is not None:
            self._trace.turn(kind, at_s)

    def _stop(self) -> None:
        """End as the user's script would on SIGTERM, at a place where nothing is half done."""
        self._slot.stop = 2
        if self._trace is not None:
            self._trace.flush()
        if self._swap is not None:
            self._swap.stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
