"""Moves of running jobs between lanes, from the command to the arrival of the job.

::

    core ──MoveJob──► a slot there is prepared ──Move──► supervisor ──goal──► the job's slot
         ◄──Done───── its old slot is empty, and is freed                       │ at a boundary, or while it waits
                              ▲                                                 ▼
                              └──────────────────────────────────────── the job goes on there

The supervisor knows both slots before the job does, so it frees both whenever the job dies. If the job ends before its
move, its `JobExited` is the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ecoshare.core.commands import MoveJob
from ecoshare.core.events import Done, Event, Refused
from ecoshare.lane.lane_table import LaneTable
from ecoshare.lane.messages import MoveAttempt
from ecoshare.lane.table_layout import SLOTS, UNREACHABLE, ParkRequest, SlotState

_LOOK_S = 0.02


class Movable(Protocol):
    """An attempt in progress, as the driver knows it.

    Attributes:
        attempt: Number of the attempt.
        places: Lane and slot on each device of the job.
        owner: ID of the command that the slots were prepared for.
        keeps_lane: Reason why the attempt keeps its lane to its end; empty if it does not, as far as known.
    """

    attempt: int
    places: tuple[tuple[int, int], ...]
    owner: int
    keeps_lane: str


@dataclass(slots=True)
class Moving:
    """Carries out `MoveJob` commands.

    Attributes:
        tables: Table of each lane.
        attempts: Attempts in progress, by job.
        places: Most jobs that the core lets into a lane.
        send: Sends a message to the supervisor.
        tell: Reports an event to the core.
        pending: Moves without an answer, by job.
    """

    tables: Mapping[int, LaneTable]
    attempts: Mapping[str, Movable]
    places: int
    send: Callable[[MoveAttempt], None]
    tell: Callable[[Callable[..., Event]], None]
    pending: dict[str, MoveAttempt] = field(default_factory=dict)
    _pins: Counter[int] = field(default_factory=Counter)

    def free_slots(self, lane: int) -> list[int]:
        """Free slots of a lane. The slot of a job that has just died stays taken until its end is reported."""
        taken = {place for attempt in self.attempts.values() for place in attempt.places}
        slots = self.tables[lane].slots
        return [slot for slot in range(SLOTS) if slots[slot].seat == SlotState.EMPTY and (lane, slot) not in taken]

    def has_spare_slot(self, lane: int) -> bool:
        """Whether a lane has a free slot beyond those of the jobs that the core may still start there.

        A parked job keeps its slot, and another one may have its place.
        """
        slots = self.tables[lane].slots
        seated = [slot for attempt in self.attempts.values() for number, slot in attempt.places if number == lane]
        at_work = [slot for slot in seated if slots[slot].parked == ParkRequest.NOTHING]
        return len(self.free_slots(lane)) > max(0, self.places - len(at_work))

    def start(self, command: MoveJob, begin: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Start the move of a command. The answer to the core comes later, unless the move is refused at once."""
        attempt = self.attempts.get(command.job)
        if attempt is None or attempt.attempt != command.attempt:
            return  # the end of the attempt is already on its way to the core
        error = self._why_not(command, attempt)
        if error:
            self.tell(partial(Refused, command=command.id, error=error))
            return
        slot = self.free_slots(command.lane)[0]
        self.tables[command.lane].seat(slot, command.id)
        move = MoveAttempt(command.id, command.job, command.attempt, command.lane, slot)
        self.pending[command.job] = move
        self.send(move)
        begin(self._watch(move))

    def _why_not(self, command: MoveJob, attempt: Movable) -> str:
        if len(attempt.places) != 1:
            return "a job on several devices keeps its lanes"
        if attempt.keeps_lane:
            return f"the job keeps its lane: {attempt.keeps_lane}"
        if command.job in self.pending:
            return "the job is on its way already"
        if command.lane not in self.tables or attempt.places[0][0] == command.lane:
            return "there is no other lane of this number"
        if not self.has_spare_slot(command.lane):
            return "the lane has no slot left"
        return ""

    async def _watch(self, move: MoveAttempt) -> None:
        while self.pending.get(move.job) is move:
            self.follow(move.job)
            await asyncio.sleep(_LOOK_S)

    def follow(self, job: str) -> None:
        """Register the end of a move if the job has arrived or cannot go. Call this before any use of its places."""
        move = self.pending.get(job)
        if move is None:
            return
        attempt = self.attempts[job]
        lane, slot = attempt.places[0]
        here, there = self.tables[lane].slots[slot], self.tables[move.lane].slots[move.slot]
        if here.goal == UNREACHABLE:
            self.refused(move.command, "the job cannot go to the lane")
        elif attempt.keeps_lane and here.seat == SlotState.HOLDING:  # it will never look at its goal
            self.refused(move.command, f"the job keeps its lane: {attempt.keeps_lane}")
        elif here.seat == SlotState.EMPTY and there.pid:  # otherwise the job died in its old slot
            # `free` takes the lock, so the job has finished with the old slot. If the job was killed while it left,
            # `free` passes its turn on.
            self.tables[lane].free(slot, attempt.owner)
            attempt.places, attempt.owner = ((move.lane, move.slot),), move.command
            del self.pending[job]
            self.tell(partial(Done, command=move.command))

    def refused(self, command: int, error: str) -> None:
        """Report to the core that a move is refused: its job stays in its lane."""
        for job, move in self.pending.items():
            if move.command == command:
                self.ended(job)
                self.tell(partial(Refused, command=command, error=error))
                return

    def ended(self, job: str) -> None:
        """Give up the move of a job, if there is one, and free the slot that was prepared for it."""
        if (move := self.pending.pop(job, None)) is not None:
            self.tables[move.lane].free(move.slot, move.command)

    def pin(self, lanes: Sequence[int]) -> None:
        """Keep the jobs of these lanes where they are until `unpin`: a measurement needs fixed places."""
        for lane in lanes:
            self._pins[lane] += 1
            self.tables[lane].pin(True)
        for job in list(self.pending):
            self.follow(job)

    def unpin(self, lanes: Sequence[int]) -> None:
        """Undo one `pin` of these lanes. The last call for a lane lets its jobs move again."""
        for lane in lanes:
            self._pins[lane] -= 1
            if not self._pins[lane]:
                self.tables[lane].pin(False)
