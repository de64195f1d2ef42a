"""Moves of running jobs from lane to lane, from the command to the job's arrival.

::

    core ──MoveJob──► a slot there is prepared ──Move──► supervisor ──goal──► the job's slot
         ◄──Done───── the slot that it had is empty, and freed                  │ at a boundary, or while it waits
                              ▲                                                 ▼
                              └──────────────────────────────────────── the job goes on there

The supervisor knows of both slots before the job does, so it frees both whenever the job dies. The move of a job that
ends first is answered by its `JobExited`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ecoshare.core.commands import MoveJob
from ecoshare.core.events import Done, Event, Refused
from ecoshare.lane.lane_table import SLOTS, UNREACHABLE, LaneTable, SlotState
from ecoshare.lane.messages import MoveAttempt

_LOOK_S = 0.02


class Movable(Protocol):
    """An attempt under way, as the driver knows it.

    Attributes:
        places: Lane and slot on each of its devices.
        owner: Command that they were prepared for.
    """

    attempt: int
    places: tuple[tuple[int, int], ...]
    owner: int


@dataclass(slots=True)
class Moving:
    """Carries out `MoveJob`.

    Attributes:
        attempts: Under way, by job.
        startable: How many jobs more the core may start in a lane.
        send: Tells the supervisor.
        tell: Tells the core.
        pending: Moves that were not answered, by job.
    """

    tables: Mapping[int, LaneTable]
    attempts: Mapping[str, Movable]
    startable: Callable[[int], int]
    send: Callable[[MoveAttempt], None]
    tell: Callable[[Callable[..., Event]], None]
    pending: dict[str, MoveAttempt] = field(default_factory=dict)
    _pins: int = 0

    def free_slots(self, lane: int) -> list[int]:
        """Slots of a lane that are nobody's; one whose job has just died is that job's until its end is told."""
        taken = {place for attempt in self.attempts.values() for place in attempt.places}
        slots = self.tables[lane].slots
        return [slot for slot in range(SLOTS) if slots[slot].seat == SlotState.EMPTY and (lane, slot) not in taken]

    def start(self, command: MoveJob, tasks: asyncio.TaskGroup) -> None:
        """Begin to carry out a command."""
        attempt = self.attempts.get(command.job)
        if attempt is None or attempt.attempt != command.attempt:
            return  # its end is under way to the core
        error = self._why_not(command, attempt)
        if error:
            self.tell(partial(Refused, command=command.id, error=error))
            return
        slot = self.free_slots(command.lane)[0]
        self.tables[command.lane].seat(slot, command.id)
        move = MoveAttempt(command.id, command.job, command.attempt, command.lane, slot)
        self.pending[command.job] = move
        self.send(move)
        tasks.create_task(self._watch(move))

    def _why_not(self, command: MoveJob, attempt: Movable) -> str:
        if len(attempt.places) != 1:
            return "a job on several devices keeps its lanes"
        if command.job in self.pending:
            return "the job is on its way already"
        if command.lane not in self.tables or attempt.places[0][0] == command.lane:
            return "there is no other lane of this number"
        if len(self.free_slots(command.lane)) <= max(0, self.startable(command.lane)):
            return "the lane has no slot left"
        return ""

    async def _watch(self, move: MoveAttempt) -> None:
        while self.pending.get(move.job) is move:
            self.follow(move.job)
            await asyncio.sleep(_LOOK_S)

    def follow(self, job: str) -> None:
        """Know of a job's arrival, if it has arrived by now, before anything is done with its place."""
        move = self.pending.get(job)
        if move is None:
            return
        attempt = self.attempts[job]
        lane, slot = attempt.places[0]
        here, there = self.tables[lane].slots[slot], self.tables[move.lane].slots[move.slot]
        if here.goal == UNREACHABLE:
            self.refused(move.command, "the job cannot go to the lane")
        elif here.seat == SlotState.EMPTY and there.pid:  # else it has died in its old place
            # Under the lock, so the job is done with it; where it was killed there, its turn is passed on.
            self.tables[lane].free(slot, attempt.owner)
            attempt.places, attempt.owner = ((move.lane, move.slot),), move.command
            del self.pending[job]
            self.tell(partial(Done, command=move.command))

    def refused(self, command: int, error: str) -> None:
        """A job stays where it is."""
        for job, move in self.pending.items():
            if move.command == command:
                self.ended(job)
                self.tell(partial(Refused, command=command, error=error))
                return

    def ended(self, job: str) -> None:
        """A job goes nowhere any more: what was prepared for it is free."""
        if (move := self.pending.pop(job, None)) is not None:
            self.tables[move.lane].free(move.slot, move.command)

    def pin(self) -> None:
        """Let everybody stay in his lane until as many `unpin` follow: places that are measured must last."""
        self._pins += 1
        for table in self.tables.values():
            table.pin(True)
        for job in list(self.pending):
            self.follow(job)

    def unpin(self) -> None:
        """Let them go on again."""
        self._pins -= 1
        for table in self.tables.values() if not self._pins else ():
            table.pin(False)
