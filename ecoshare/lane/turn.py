"""A job's side of its lane's turn: take it, offer it at boundaries, leave it.

::

    A  ═══════boundary══boundary═╗                         ╔════
              nobody waits       ║ quantum used up,        ║
              or quantum left    ║ drain, grant B          ║
    B                            ╚═══════════boundary══════╝

No message goes to the controller: the holder picks its successor itself, with `core.turns`.

Where the controller has named a slot of another lane, the job goes on there, from a boundary or from its wait:

    lane 0, A  ═══════boundary═╗
                               ║ drain, copy what it has done, empty the slot, grant B: all under the lock of lane 0
    lane 0, B                  ╚═══════════
    lane 1, A                   ─ ─ ─ ═════    a newcomer
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ecoshare.core.turns import Contender
from ecoshare.lane.lane_table import (
    NO_GOAL,
    NO_RANK,
    NOBODY,
    UNREACHABLE,
    BoundaryRequest,
    LaneTable,
    SlotState,
    lane_path,
)
from ecoshare.lane.trace import Kind, Tracer

_LOOK_AGAIN_S = 1.0
"""A waiter that was never woken (its waker was killed in between) looks for itself after this long."""

_LOOK_S = 0.002

_COLD = 8
"""Iterations at the beginning of a turn that may be slower for the hand-over before them: the first by the most, but
caches fill and the last holder's threads fall asleep over several (tried: 7 iterations of 18 ms, 2 to 6 % each)."""

_ENOUGH = 5
"""Warm iterations that a job must have done before its cold ones say what a hand-over costs."""

_SMOOTHING = 0.1
"""Weight of a new sample in the running means."""


class Leaving(BaseException):
    """Unwinds a job that is a thread of a shared process: it was asked to end, or must have a process of its own."""


class ThreadState(Protocol):
    """What a job that is a thread of a shared process puts aside while others there have the turn.

    Nothing of such a job runs without the turn, so it is told both right before it goes and right after it has come.
    """

    def out(self) -> None:
        """The turn is about to be passed on."""
        ...

    def back(self) -> None:
        """The turn is here."""
        ...

    def before_wake(self, slot: int | None) -> None:
        """The job of that slot is about to be granted the turn, and woken."""
        ...

    def processor_s(self) -> float:
        """Processor time of its turns so far."""
        ...

    def boundary(self) -> None:
        """An iteration has ended.

        Raises:
            Leaving: The job may not stay.
        """
        ...

    def stop(self) -> None:
        """The job was asked to end.

        Raises:
            Leaving: Always.
        """
        ...


class LaneTurn:
    """One job's claim on the turn of one lane. Not for use by two threads at once.

    Attributes:
        holding: Whether the job has the turn.
    """

    def __init__(
        self, table: LaneTable, index: int, trace: Tracer | None = None, swap: ThreadState | None = None
    ) -> None:
        """A claim in slot `index`, which the controller has prepared; what happens is marked in `trace`.

        Args:
            swap: Of a job that shares its process with others.
        """
        self._trace = trace
        self._swap = swap
        self._table = table
        self._index = index
        self._slot = table.slots[index]
        self._place = _COLD  # of the iteration under way, counted from the hand-over
        self._lost_s = 0.0  # by the cold iterations of this turn
        self._left_s = 0.0
        self._away_s = 0.0  # since the last iteration ended
        self._wanted = False  # from `take` to `leave`
        self._waited_before_s = 0.0  # for the same turn, in lanes that it has left since
        self._handovers_before = 0  # in those lanes
        self._slot.fused = swap is not None
        self._slot.pid = os.getpid()

    @property
    def holding(self) -> bool:
        """Whether the job has the turn."""
        return bool(self._slot.seat == SlotState.HOLDING)

    def take(self) -> None:
        """Wait for the turn; at once where the job has it."""
        if self.holding:
            return
        self._wanted = True
        if self._slot.seat != SlotState.WAITING:  # else a signal handler of the script broke off the wait
            self._move()
            if self._enter():
                return
        self._wait()

    def offer(self, drain: Callable[[], None]) -> None:
        """At a boundary: hand the turn over if its quantum is used up, or someone waits who need not wait for that.

        Args:
            drain: Waits until the device has done what the job has asked of it.
        """
        if self._wanted and not self.holding:
            self.take()
            return
        if self._slot.goal != NO_GOAL and self._move(drain):
            if self._wanted:
                self.take()
            return
        table, slot, header = self._table, self._slot, self._table.header
        if slot.stop == 1:
            drain()
            self._stop()
        if header.waiting_rank == NO_RANK or not self.holding:
            return
        held_s = time.monotonic() - slot.since_s
        early = self._service_s(held_s) > header.early_at_s
        if held_s < header.quantum_s and not early and header.waiting_rank >= slot.rank:
            return
        drain()
        with table.locked():
            now_s = time.monotonic()
            held_s = now_s - slot.since_s
            used_up = held_s >= header.quantum_s
            mine = Contender(self._index, slot.rank, self._service_s(held_s), now_s)
            chosen = table.succeed(mine, used_up, now_s)
            if chosen == self._index and not used_up:
                header.early_at_s = math.inf  # not in this turn, unless somebody comes or goes
                return
            self._account(now_s)
            if chosen == self._index:
                slot.since_s = now_s
                table.refresh()
                return
            slot.since_s = now_s
            slot.seat = SlotState.WAITING
            if used_up:  # a turn that was cut short has not lost all that it would have
                self._learn_loss()
            if self._swap is not None:  # before the word that lets another of its process go on
                self._swap.out()
                self._swap.before_wake(chosen)
            table.grant(chosen)
        self._mark(Kind.TURN_ENDS, now_s)
        table.wake(chosen)  # last: a thread of this process that wakes needs the interpreter that this one then leaves
        self._wait()

    def leave(self) -> None:
        """Give the turn up without wanting it back yet."""
        table, slot = self._table, self._slot
        self._wanted = False
        if slot.seat == SlotState.AWAY:
            return
        chosen = None
        with table.locked():
            now_s, held = time.monotonic(), self.holding
            if held:
                self._account(now_s)
            slot.seat = SlotState.AWAY
            self._left_s = now_s
            if table.header.holder == self._index:
                chosen = table.choose(now_s)
                table.grant(chosen)
            else:
                table.refresh()
        table.wake(chosen)
        if held:
            self._mark(Kind.TURN_ENDS, now_s)

    def count(self, evaluating: bool) -> None:
        """Count an iteration that has just ended, and learn its time and what the hand-over before it cost."""
        slot, now_s = self._slot, time.monotonic()
        if evaluating:
            slot.eval_iterations += 1
        else:
            slot.iterations += 1
        if self._trace is not None:
            self._trace.iteration(Kind.EVAL if evaluating else Kind.TRAIN, now_s)
        waited_s = slot.waited_s
        if slot.last_s:
            took_s = now_s - slot.last_s - (waited_s - slot.waited_at_last_s)
            self._learn(took_s - self._away_s)  # absences keep nobody waiting
        else:
            slot.first_s, slot.waited_at_first_s = now_s, waited_s
        slot.last_s, slot.waited_at_last_s = now_s, waited_s
        self._away_s = 0.0
        if self._swap is not None:
            slot.cpu_s = self._swap.processor_s()

    @property
    def asked(self) -> int:
        """What the controller asks of the job: an `BoundaryRequest`."""
        return int(self._slot.ask)

    def answer(self, answer: BoundaryRequest) -> None:
        """Tell the controller so."""
        self._slot.ask = answer

    def stay(self, longest_s: float) -> None:
        """Wait until the controller has taken note of the answer, but no longer than that."""
        end_s = time.monotonic() + longest_s
        while self._slot.ask == BoundaryRequest.OBSERVED:
            if time.monotonic() > end_s:
                self._slot.ask = BoundaryRequest.NOTHING
                break
            time.sleep(_LOOK_S)

    def tell_out_of_memory(self) -> None:
        """Leave word for the supervisor: this process ends because it got no more memory."""
        self._slot.out_of_memory = 1

    def _learn(self, took_s: float) -> None:
        slot = self._slot
        if self._place >= _COLD:
            slot.warm_iterations += 1
            slot.iteration_s += max(_SMOOTHING, 1 / slot.warm_iterations) * (took_s - slot.iteration_s)
        else:
            # The sign is kept until the mean is used, or noise would add up. A checkpoint is no loss by hand-over.
            self._lost_s += min(took_s - slot.iteration_s, slot.iteration_s + 0.01)
        self._place += 1
        # Decays, so that one slow iteration (a checkpoint, a compilation) does not bound the quantum for ever.
        slot.longest_iteration_s = max(took_s, 0.95 * slot.longest_iteration_s)

    def _service_s(self, held_s: float) -> float:
        return float(self._slot.service_s + held_s / (self._slot.weight or 1.0))

    def _account(self, now_s: float) -> None:
        slot = self._slot
        slot.held_s = slot.balance_s + now_s
        slot.service_s = self._service_s(now_s - slot.since_s)
        header = self._table.header
        header.virtual_s = max(header.virtual_s, slot.service_s)

    def _learn_loss(self) -> None:
        """A turn is over: what its cold iterations lost belongs to the cost of a hand-over."""
        if self._slot.warm_iterations >= _ENOUGH and self._place > 0:
            header = self._table.header
            header.refill_s += _SMOOTHING * (self._lost_s - header.refill_s)

    def _enter(self) -> bool:
        """Ask for the turn, as one that neither has nor wants it; whether the job has it at once."""
        table, slot = self._table, self._slot
        chosen = None
        with table.locked():
            slot.since_s = time.monotonic()
            if self._left_s:
                self._away_s += slot.since_s - self._left_s
                self._left_s = 0.0
            slot.back = slot.handovers > self._handovers_before
            table.level(self._index, slot.since_s)
            slot.seat = SlotState.WAITING
            if table.header.holder == NOBODY:
                chosen = table.choose(slot.since_s)
                table.grant(chosen)
            else:
                table.refresh()
        if chosen == self._index:
            self._begin(slot.since_s)
            return True
        table.wake(chosen)
        return False

    def _wait(self) -> None:
        while True:
            table, slot, header = self._table, self._slot, self._table.header
            seen = slot.grant
            if header.holder == self._index:
                break
            if slot.stop == 1 and self._swap is None:  # a thread may not run without the turn, not even to its end
                self._stop()
            if slot.goal != NO_GOAL and self._move():
                if self._enter():
                    return
                continue
            table.sleep(self._index, seen, _LOOK_AGAIN_S)
        now_s = time.monotonic()
        waited_s = now_s - slot.since_s
        header.latency_s += _SMOOTHING * (now_s - header.handed_s - header.latency_s)
        slot.waited_s += waited_s
        slot.longest_wait_s = max(slot.longest_wait_s, self._waited_before_s + waited_s)
        self._place, self._lost_s = 0, 0.0
        self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        slot = self._slot
        self._waited_before_s = 0.0
        slot.handovers += 1
        slot.back = 0
        slot.since_s = now_s
        slot.balance_s = slot.held_s - now_s
        slot.seat = SlotState.HOLDING
        self._mark(Kind.TURN_BEGINS, now_s)
        if self._swap is not None:
            self._swap.back()
            if slot.stop == 1:
                self._stop()

    def _move(self, drain: Callable[[], None] = lambda: None) -> bool:
        """Go on in the lane that the controller has named, without the turn there; whether there was one to go to.

        One store empties the slot here. Whoever reads the job's counters finds those here before it, and those there,
        which are equal by then, after it; where the process is killed before it has passed its turn on, the supervisor
        does so, as for any that dies with it.
        """
        here, slot, place = self._table, self._slot, self._index
        goal = here.goal(place)
        if goal is None:
            return False
        if self._swap is not None:  # it would have to take its process along
            slot.goal = UNREACHABLE
            return False
        lane, index = goal
        try:
            table = LaneTable(lane_path(Path(here.path).parent, lane))
        except (OSError, ValueError):
            slot.goal = UNREACHABLE
            return False
        if self.holding:
            drain()
        there, empty = table.slots[index], int(SlotState.EMPTY)
        with here.locked():
            if here.goal(place) != goal:
                table.close()
                return False
            now_s, held = time.monotonic(), self.holding
            waited_s = now_s - slot.since_s if slot.seat == SlotState.WAITING else 0.0
            if held:
                self._account(now_s)
            here.copy(place, there)
            there.waited_s += waited_s
            there.longest_wait_s = max(there.longest_wait_s, self._waited_before_s + waited_s)
            # No call stands between these, so no signal handler of the script comes between them.
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
        """End as the user's script would on SIGTERM, here where nothing is half done."""
        self._slot.stop = 2
        if self._trace is not None:
            self._trace.flush()
        if self._swap is not None:
            self._swap.stop()
        os.kill(os.getpid(), signal.SIGTERM)
