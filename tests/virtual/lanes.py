"""Stand-in for the warm server and the processes of jobs. It obeys the same messages and writes the same tables."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.base.clock import Clock
from ecoshare.lane import exit_records
from ecoshare.lane.messages import (
    Ended,
    LaunchAttempt,
    Launched,
    Message,
    MoveAttempt,
    NotLaunched,
    Ready,
    StopAttempt,
)
from ecoshare.lane.supervisor.attempt_process import usage
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_GOAL, UNREACHABLE, BoundaryRequest, ParkRequest, SlotState
from ecoshare.lane.trace import Kind, Reporter, Tracer, reports_path, trace_path

_LOOK_S = 0.02
"""Time (s) after which a lane without a turn is looked at again: the controller may have changed its table."""

_GAP_S = 1e-6
"""Time (s) between two messages on their way."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Course and end of one attempt of a job.

    Attributes:
        load_s: Time (s) before its first iteration.
        iterations: Number of iterations that it does.
        iteration_s: Time (s) of each with the turn.
        outcome: How it ends after them: a value of `base.attempt.Outcome`.
        launched: Whether it can be started at all.
        hangs: Whether it does not end after them, but holds its turn until it is killed.
        beside: Whether it works beside the device, and takes no turn.
        losses: Values of `loss` that it reports, one after each iteration as long as there are some.
    """

    load_s: float = 1.0
    iterations: int = 20
    iteration_s: float = 0.1
    outcome: str = "completed"
    launched: bool = True
    hangs: bool = False
    beside: bool = False
    losses: tuple[float, ...] = ()


@dataclass(slots=True, eq=False)
class Span:
    """Time of one attempt that was launched.

    Attributes:
        job: Name of the job.
        attempt: Number of the attempt.
        from_s: Begin (s).
        to_s: End (s); infinite while it goes on.
        is_completed: Whether it did all its work.
    """

    job: str
    attempt: int
    from_s: float
    to_s: float = math.inf
    is_completed: bool = False


@dataclass(slots=True, eq=False)
class _Attempt:
    """An attempt in progress.

    Attributes:
        table: Table of its lane, or of the first of its lanes.
        index: Slot of the attempt there.
        others: Tables and slots of its other lanes. Then it keeps all of them to its end.
    """

    launch: LaunchAttempt
    fate: Fate
    table: LaneTable
    index: int
    tracer: Tracer
    reporter: Reporter
    span: Span
    others: list[tuple[LaneTable, int]] = field(default_factory=list)
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    stop: StopAttempt | None = None
    done: int = 0
    is_over: bool = False

    @property
    def places(self) -> list[tuple[LaneTable, int]]:
        """Table and slot in each of its lanes."""
        return [(self.table, self.index), *self.others]

    @property
    def has_all_turns(self) -> bool:
        """Whether it may work: each of its lanes has granted it the turn."""
        return all(table.header.holder == index for table, index in self.places)


class VirtualLanes:
    """A warm server with its jobs; see `runtime.run_host.WarmServer`.

    Attributes:
        pid: Process that it stands for.
    """

    def __init__(
        self,
        clock: Clock,
        fates: Callable[[str, int], Fate],
        spans: list[Span],
        latency_s: Callable[[Message], float | None] = lambda message: 0.001,
        cuda: str = "12.6",
    ) -> None:
        """Start a server, which is ready after three seconds.

        Args:
            fates: Returns what becomes of an attempt, by job and number.
            spans: Gets the time of each attempt.
            latency_s: Time (s) that a message takes on its way, in either direction; None if it is lost.
            cuda: Version of CUDA for which its torch was built.
        """
        self.pid = os.getpid()
        self._spans, self._cuda = spans, cuda
        self._seen: Message | None = None
        self._clock, self._fates, self._latency_s = clock, fates, latency_s
        self._answers: asyncio.Queue[Message | None] = asyncio.Queue()
        self._tables: dict[str, LaneTable] = {}
        self._attempts: list[_Attempt] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_dead = self._is_loaded = False
        self._early: list[Message] = []
        self._due_s = 0.0
        self._begin(self._load())

    # The interface of the warm server

    @property
    def is_stopped(self) -> bool:
        return False

    def send(self, message: Message) -> None:
        self._later(message, self._obey)

    async def messages(self) -> AsyncIterator[Message]:
        while (message := self._seen or await self._answers.get()) is not None:
            self._seen = None
            yield message

    async def ready(self) -> Ready | None:
        self._seen = await self._answers.get()
        if self._seen is None:
            self._answers.put_nowait(None)  # it stays dead
        return self._seen if isinstance(self._seen, Ready) else None

    def kill(self) -> None:
        """End the server and its jobs, without a word."""
        if not self._is_dead:
            self._is_dead = True
            for each in self._attempts:
                each.span.to_s = self._clock.monotonic_s()
            for task in self._tasks:
                task.cancel()
            self._answers.put_nowait(None)

    async def close(self) -> int:
        self.kill()
        return 0

    # Messages

    def _later(self, message: Message, act: Callable[[Message], None]) -> None:
        """Let a message arrive. Like those of a socket, messages arrive in their order."""
        latency_s = self._latency_s(message)
        if latency_s is not None:
            self._due_s = max(self._due_s + _GAP_S, self._clock.monotonic_s() + latency_s)
            asyncio.get_running_loop().call_at(self._due_s, act, message)

    def _answer(self, message: Message) -> None:
        if not self._is_dead:
            self._later(message, self._answers.put_nowait)

    async def _load(self) -> None:
        await asyncio.sleep(3.0)
        self._answer(Ready(self.pid, "virtual", 1, 3.0, self._cuda))
        self._is_loaded = True
        for message in self._early:
            self._obey(message)

    def _obey(self, message: Message) -> None:
        if not self._is_loaded:
            self._early.append(message)
            return
        if self._is_dead:
            return
        match message:
            case LaunchAttempt():
                self._launch(message)
            case StopAttempt():
                for each in self._of(message.job, message.attempt):
                    each.stop = message
                    each.table.stop(each.index, each.launch.command)
                    if message.at_once or each.fate.hangs:
                        each.killed.set()
            case MoveAttempt():
                for each in self._of(message.job, message.attempt):
                    each.table.send(each.index, message.lane, message.slot, each.launch.command)
            case _:
                pass

    def _of(self, job: str, attempt: int) -> list[_Attempt]:
        return [each for each in self._attempts if (each.launch.job, each.launch.attempt) == (job, attempt)]

    def _launch(self, launch: LaunchAttempt) -> None:
        fate = self._fates(launch.job, launch.attempt)
        if not fate.launched:
            self._answer(NotLaunched(launch.command, "no process can be made"))
            return
        assert not launch.ranks, "gangs that take turns need real ranks"
        (path, index), *others = launch.tables
        folder = Path(launch.folder)
        folder.mkdir(parents=True, exist_ok=True)
        tracer = Tracer(trace_path(folder, launch.attempt), launch.opened_s)
        span = Span(launch.job, launch.attempt, self._clock.monotonic_s())
        self._spans.append(span)
        reporter = Reporter(reports_path(folder, launch.attempt))
        attempt = _Attempt(launch, fate, self._table(path), index, tracer, reporter, span)
        attempt.others = [(self._table(path), index) for path, index in others]
        self._attempts.append(attempt)
        self._answer(Launched(launch.command, 0, True, ""))
        self._begin(self._live(attempt))

    def _table(self, path: str) -> LaneTable:
        if path not in self._tables:
            self._tables[path] = LaneTable(path, self._clock.monotonic_s)
            self._begin(self._keep_lane(self._tables[path]))
        return self._tables[path]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Jobs

    async def _live(self, attempt: _Attempt) -> None:
        """From the start of an attempt to its first wait for the turn. From then on its lane lets it iterate."""
        if await self._killed_within(attempt, attempt.fate.load_s):
            self._end(attempt)
            return
        while attempt.fate.beside:
            if await self._killed_within(attempt, attempt.fate.iteration_s) or attempt.done == attempt.fate.iterations:
                self._end(attempt)
                return
            self._count(attempt)
        for table, index in attempt.places:
            with table.locked():
                slot = table.slots[index]
                slot.since_s, slot.emptied = self._clock.monotonic_s(), 1
                table.level(index, self._clock.monotonic_s())
                slot.seat = SlotState.WAITING
        attempt.tracer.turn(Kind.WAITS, self._clock.monotonic_s())

    @staticmethod
    async def _killed_within(attempt: _Attempt, time_s: float) -> bool:
        try:
            await asyncio.wait_for(attempt.killed.wait(), time_s)
        except TimeoutError:
            return False
        return True

    async def _keep_lane(self, table: LaneTable) -> None:
        """Let the jobs of a lane iterate by turns."""
        while True:
            with table.locked():
                table.grant_if_free(self._clock.monotonic_s())
            present = {each.index: each for each in self._attempts if each.table is table}
            for each in present.values():
                self._wait(each)
            attempt = present.get(table.header.holder)
            if attempt is None or attempt.is_over or not attempt.has_all_turns:
                if attempt is not None and (attempt.killed.is_set() or table.slots[attempt.index].stop):
                    self._end(attempt)
                await asyncio.sleep(_LOOK_S)
            else:
                await self._turn(attempt)

    def _wait(self, attempt: _Attempt) -> None:
        """Do what a job that waits for its turn does when it is asked."""
        table, slot = attempt.table, attempt.table.slots[attempt.index]
        if attempt.is_over or slot.seat != SlotState.WAITING or table.header.holder == attempt.index:
            return
        if slot.stop or attempt.killed.is_set():
            self._end(attempt)
        elif table.goal(attempt.index) is not None:
            self._move(attempt)
        elif slot.parked == ParkRequest.ASKED:
            slot.parked, slot.emptied = ParkRequest.READY, 1
        elif table.header.empties:
            slot.emptied = 1

    async def _turn(self, attempt: _Attempt) -> None:
        table, slot, clock = attempt.table, attempt.table.slots[attempt.index], self._clock
        assert not slot.parked, "a job that is parked has the turn"
        waited_s = clock.monotonic_s() - slot.since_s
        slot.waited_s += waited_s
        slot.longest_wait_s = max(slot.longest_wait_s, waited_s)
        table.note_wait(waited_s)
        slot.handovers, slot.back, slot.emptied = slot.handovers + 1, 0, 0
        slot.since_s = clock.monotonic_s()
        slot.balance_s = slot.held_s - clock.monotonic_s()
        for each, index in attempt.places:
            each.slots[index].seat = SlotState.HOLDING
        attempt.tracer.turn(Kind.TURN_BEGINS, clock.monotonic_s())
        while True:
            if await self._killed_within(attempt, attempt.fate.iteration_s) or slot.stop:
                self._end(attempt)
                return
            self._count(attempt)
            if attempt.done >= attempt.fate.iterations:
                if attempt.fate.hangs:
                    await attempt.killed.wait()
                self._end(attempt)
                return
            if slot.ask == BoundaryRequest.OBSERVE:
                slot.ask = BoundaryRequest.OBSERVED
            elif slot.ask == BoundaryRequest.FLUSH:
                attempt.tracer.flush()
                slot.ask = BoundaryRequest.NOTHING
            elif slot.ask == BoundaryRequest.LIMIT:
                slot.limited_bytes, slot.ask = slot.cap_bytes, BoundaryRequest.NOTHING
            if table.goal(attempt.index) is not None:
                self._account(attempt)
                self._move(attempt)
                return
            if attempt.others:
                continue
            with table.locked():
                now_s = clock.monotonic_s()
                held_s = now_s - slot.since_s
                service_s = slot.service_s + held_s / (slot.weight or 1.0)
                used_up = held_s >= table.header.quantum_s
                chosen = table.succeed(table.contender(attempt.index, service_s, now_s), used_up, now_s)
                if chosen != attempt.index:
                    self._account(attempt)
                    slot.since_s, slot.seat, slot.emptied = now_s, SlotState.WAITING, 1
                    table.grant(chosen)
                    attempt.tracer.turn(Kind.TURN_ENDS, now_s)
                    return

    def _account(self, attempt: _Attempt) -> None:
        """Count the turn of a job, which is over."""
        slot, header, now_s = attempt.table.slots[attempt.index], attempt.table.header, self._clock.monotonic_s()
        slot.held_s = slot.balance_s + now_s
        slot.service_s += (now_s - slot.since_s) / (slot.weight or 1.0)
        header.virtual_s = max(header.virtual_s, slot.service_s)

    def _count(self, attempt: _Attempt) -> None:
        """Count an iteration that has just ended."""
        slot, now_s = attempt.table.slots[attempt.index], self._clock.monotonic_s()
        attempt.done += 1
        slot.iterations += 1
        slot.peak_bytes, slot.kept_bytes = 1 << 30, 1 << 29
        slot.warm_iterations += 1
        slot.iteration_s = slot.longest_iteration_s = attempt.fate.iteration_s
        if not slot.first_s:
            slot.first_s, slot.waited_at_first_s = now_s, slot.waited_s
        slot.last_s, slot.waited_at_last_s = now_s, slot.waited_s
        attempt.tracer.iteration(Kind.TRAIN, now_s)
        if attempt.done <= len(attempt.fate.losses):
            attempt.reporter.report({"loss": attempt.fate.losses[attempt.done - 1]})

    def _move(self, attempt: _Attempt) -> None:
        """Go on in the lane that the controller has named, without the turn there."""
        here, index = attempt.table, attempt.index
        goal = here.goal(index)
        assert goal is not None
        lane, place = goal
        try:
            table = self._table(str(Path(here.path).parent / f"lane{lane}"))
        except (OSError, ValueError):
            here.slots[index].goal = UNREACHABLE
            return
        there, slot, now_s = table.slots[place], here.slots[index], self._clock.monotonic_s()
        with here.locked():
            here.copy(index, there)
            if slot.seat == SlotState.WAITING:
                there.waited_s += now_s - slot.since_s
            slot.seat = SlotState.EMPTY
            slot.goal = NO_GOAL
            attempt.table, attempt.index = table, place
            here.pass_on(index)
        with table.locked():
            there.since_s, there.emptied = now_s, 1
            table.level(place, now_s)
            there.seat = SlotState.WAITING

    def _end(self, attempt: _Attempt) -> None:
        """Write the record of an attempt that is over, and tell of its end."""
        if attempt.is_over:
            return
        attempt.is_over, attempt.span.to_s = True, self._clock.monotonic_s()
        self._attempts.remove(attempt)
        attempt.tracer.close()
        attempt.reporter.close()
        slot, stop, fate, launch = attempt.table.slots[attempt.index], attempt.stop, attempt.fate, attempt.launch
        if stop is not None:
            outcome, code, reason = "pruned" if stop.pruned else "stopped", 143, stop.reason
        else:
            outcome, reason = fate.outcome, "" if fate.outcome == "completed" else "as it was told"
            attempt.span.is_completed = outcome == "completed"
            code = 0 if attempt.span.is_completed else 1
        ended = Ended(launch.job, launch.attempt, outcome, code, reason, usage(slot, self._clock.monotonic_s))
        exit_records.write(Path(launch.folder), ended)
        for table, index in attempt.places:
            table.free(index, table.slots[index].owner)
        self._answer(ended)
