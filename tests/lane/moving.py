"""Two lanes with functions as jobs that move from one to the other, and the real parts of controller and supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ecoshare.core.commands import MoveJob
from ecoshare.core.events import Done, Event
from ecoshare.lane.messages import LaunchAttempt, MoveAttempt
from ecoshare.lane.supervisor.attempt_process import AttemptProcess, PreparedSlot
from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.tables.table_layout import NO_RANK, NO_SLOT, SlotState
from ecoshare.lane.turn import LaneTurn
from ecoshare.runtime.nodes.attempts import Moving

Body = Callable[[LaneTurn], None]


@dataclass
class Known:
    """Job in the driver's records."""

    attempt: int
    places: tuple[tuple[int, int], ...]
    owner: int
    keeps_lane: str = ""


@dataclass
class Lanes:
    """Two lanes with functions as jobs, the driver's `Moving` and the supervisor's `AttemptProcess`."""

    folder: Path
    tables: dict[int, LaneTable] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    attempts: dict[str, AttemptProcess] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.tables |= {lane: LaneTable.create(lane_path(self.folder, lane)) for lane in range(2)}
        self.moving = Moving(self.tables, self.known, 0, self._send, lambda make: self.told.append(make(at_s=0.0)))

    def _send(self, move: MoveAttempt) -> None:
        if move.job in self.attempts:  # else it has been reaped
            self.attempts[move.job].go_on(self.tables[move.lane], move)

    def start(self, name: str, lane: int, body: Body, rank: int = 0) -> AttemptProcess:
        """Fork a process that runs `body` with its turn in a lane."""
        slot, owner = self.moving.free_slots(lane)[0], next(self.ids)
        table = self.tables[lane]
        table.seat(slot, owner)
        table.claim({slot: (rank, 1.0)})
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                body(LaneTurn(LaneTable(table.path), slot))
                code = 0
            finally:
                os._exit(code)
        launch = LaunchAttempt(
            owner, name, 1, [(table.path, slot)], None, None, [], "/", {}, None, False, "cpu", 1 << 40, None, None,
            str(self.folder), 0.0,
        )  # fmt: skip
        self.attempts[name] = AttemptProcess(launch, pid, os.pidfd_open(pid), [PreparedSlot(table, slot, owner)])
        self.known[name] = Known(1, ((lane, slot),), owner)
        return self.attempts[name]

    def move(self, name: str, lane: int, tasks: asyncio.TaskGroup) -> int:
        """Ask a job to move to another lane; returns the id of the command."""
        command = MoveJob(next(self.ids), name, 1, lane)
        self.moving.start(command, tasks.create_task)
        return command.id

    def has_moved(self, command: int) -> bool:
        """Whether a move is over and successful."""
        return any(isinstance(event, Done) and event.command == command for event in self.told)

    def place(self, name: str) -> tuple[int, int]:
        """Lane and slot of a job."""
        self.moving.follow(name)
        return self.known[name].places[0]

    def slot(self, name: str) -> Any:
        """Slot of a job."""
        lane, index = self.place(name)
        return self.tables[lane].slots[index]

    def reap(self, name: str) -> tuple[int, dict[str, Any]]:
        """Wait for a job's end and act as the supervisor and the driver; returns its exit code and usage."""
        attempt = self.attempts[name]
        _, status, used = os.wait4(attempt.pid, 0)
        ended = attempt.ended(status, used)
        attempt.free()
        os.close(attempt.pidfd)
        del self.attempts[name], self.known[name]
        self.moving.ended(name)
        return os.waitstatus_to_exitcode(status), ended.usage

    def kill(self, name: str) -> dict[str, Any]:
        """End a job with SIGKILL; returns its usage."""
        os.kill(self.attempts[name].pid, signal.SIGKILL)
        return self.reap(name)[1]

    @property
    def is_empty(self) -> bool:
        """Whether all slots of all lanes are empty, and no job has the turn."""
        return all(
            table.header.holder == NO_SLOT
            and table.header.waiting_rank == NO_RANK
            and all(slot.seat == SlotState.EMPTY for slot in table.slots)
            for table in self.tables.values()
        )


async def until_then(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        await asyncio.sleep(0.001)


def moves(scene: Callable[[asyncio.TaskGroup], Coroutine[Any, Any, None]]) -> None:
    """Run a scene in which jobs move; jobs with pending moves must have been killed or reaped."""

    async def play() -> None:
        async with asyncio.TaskGroup() as tasks:
            await scene(tasks)

    asyncio.run(play())


def train(iterations: int = 1 << 60, each_s: float = 0.0003, quantum_s: float | None = 0.0) -> Body:
    """Body of a job; a quantum of None is the lane's own."""

    def body(turn: LaneTurn) -> None:
        turn.take()
        for _ in range(iterations):
            time.sleep(each_s)
            turn.count(evaluating=False)
            if quantum_s is not None:
                turn._table.header.quantum_s = quantum_s
            turn.offer(lambda: None)
        turn.leave()

    return body
