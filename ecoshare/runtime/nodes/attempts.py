"""Attempts in progress during a run, with the lanes' tables that they have slots in.

::

    StartJob ──► start: a slot in each lane ──► Launched ... usage, memory, progress ... Ended ──► end
                                            └─► NotLaunched ──► give_up

Each reader of a job's table follows the job first: it may have moved to another lane meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ecoshare.base.attempt import Usage
from ecoshare.base.clock import REAL, Clock
from ecoshare.base.device import DeviceInfo
from ecoshare.base.plural import counted
from ecoshare.core.commands import LimitMemory, MoveJob, OpenLane, SetShares, StartJob
from ecoshare.core.events import Done, Event, Refused
from ecoshare.core.memory import KEPT_ALLOWANCE_BYTES
from ecoshare.core.settings.phase_watch import PhaseWatch
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import processes
from ecoshare.lane.messages import Ended, MoveAttempt
from ecoshare.lane.supervisor import attempt_process
from ecoshare.lane.tables.gang_table import GangTable
from ecoshare.lane.tables.lane_table import LaneTable, lane_path
from ecoshare.lane.tables.table_layout import SLOTS, UNREACHABLE, BoundaryRequest, ParkRequest, Slot, SlotState
from ecoshare.record import samples
from ecoshare.record.samples import AttemptProgress
from ecoshare.runtime.planning.node_job import NodeJob

_CHANGE = 0.05
"""Relative change of the resident size above which the proportional size is read again."""


@dataclass(slots=True)
class Footprints:
    """Memory of attempts, by attempt key. Call `forget` for each attempt that has ended.

    On the CPU, the true figure is the proportional set size. For a process that has loaded torch, the kernel needs 3 ms
    (measured) to compute it, and locks the memory map of the process meanwhile. The resident size takes 15 us and
    changes together with it. So a change of the resident size shows when to read the proportional size again. It is
    first read when an attempt is seen for the second time, a second after the first: most short jobs have ended by
    then.
    """

    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _peaks: dict[str, int] = field(default_factory=dict)

    def bytes(self, key: str, pids: list[int], on_device: Mapping[int, int] | None, sharing: int = 1) -> int | None:
        """Present memory (bytes) of an attempt; None if it is unknown.

        Args:
            key: Key of the attempt.
            pids: Processes of the attempt.
            on_device: Memory (bytes) of each process on the GPU; None if the jobs run on the processors.
            sharing: Number of attempts that share these processes. Each attempt counts an equal part.
        """
        if on_device is not None:
            # In some containers the driver names the right process with 0 bytes; a context takes more.
            known = [size_bytes for pid in pids if (size_bytes := on_device.get(pid))]
            return sum(known) // sharing if known else None
        resident = processes.resident_bytes(pids)
        before = self._seen.get(key)
        if before is None:
            before = self._seen[key] = 0, 0
        elif abs(resident - before[0]) > _CHANGE * before[0]:
            before = self._seen[key] = resident, processes.proportional_bytes(pids)
        return before[1] // sharing or None

    def peak_bytes(self, key: str, pids: list[int]) -> int:
        """Largest memory (bytes) of an attempt on the processors in all calls so far, including this one."""
        self._peaks[key] = max(self._peaks.get(key, 0), self.bytes(key, pids, None) or 0)
        return self._peaks[key]

    def largest_seen_bytes(self, key: str) -> int:
        """Result of the last `peak_bytes`; 0 without one."""
        return self._peaks.get(key, 0)

    def forget(self, key: str) -> None:
        """Remove an attempt that has ended."""
        self._seen.pop(key, None)
        self._peaks.pop(key, None)


_LOOK_S = 0.02

_GOES_WITHIN_S = 3.0
"""Time (s) after which a job that was asked to move and has not gone stays, if its iterations are not long."""


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

    ::

        core ──MoveJob──► a slot there is prepared ──Move──► supervisor ──goal──► the job's slot
             ◄──Done───── its old slot is empty, and is freed                       │ at a boundary, or while it waits
                                  ▲                                                 ▼
                                  └──────────────────────────────────────── the job goes on there

    The supervisor knows both slots before the job does, so it frees both whenever the job dies. If the job ends before
    its move, its `JobExited` is the answer. A job that comes to no boundary, as in a wait for a process, stays:
    another one can go instead.

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
        looks = 0  # at a job that could go
        while self.pending.get(move.job) is move:
            attempt = self.attempts[move.job]
            lane, slot = attempt.places[0]
            late_s = max(_GOES_WITHIN_S, 2.0 * self.tables[lane].slots[slot].longest_iteration_s)
            if looks * _LOOK_S > late_s and self.tables[lane].take_back(slot, attempt.owner):
                self.refused(move.command, f"the job came to no end of an iteration for {late_s:.0f} s")
            self.follow(move.job)
            await asyncio.sleep(_LOOK_S)
            looks += not self._pins[lane]

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


_PROGRESS_SHARE = 0.01
_PROGRESS_AT_LEAST_S = 60.0
"""Progress of a job is reported when the job has done a hundredth more than was known, or when a minute has passed.

This is enough for any policy, and gives a log of a few megabytes a day.
"""

_ANSWERS_SHARE = 0.2
"""The same part for a service. No policy goes by its answers, and services answer faster than jobs iterate."""

_GROWTH, _GROWN_BYTES = 1.1, 64 << 20
"""Ratio of the memory of a job to its reported memory, and memory beyond it, from which on it is reported at once."""


@dataclass(slots=True)
class LiveAttempt:
    """An attempt that the supervisor was asked to start, and that has no reported end.

    Attributes:
        places: Lane and slot on each device of the job.
        owner: ID of the command that the slots were prepared for.
        known: Usage that was last reported to the core.
        seen: Usage that was last read.
        told_s: Time (s) in the run of the last report to the core.
        keeps_lane: Reason, in words, why the attempt keeps its lane to its end; empty if it does not, as far as known.
        spent_s: Processor time (s) in each of its lanes that was last read.
        measured_s: Time (s) in the run of the last look at its memory.
        command: Id of the command that started it.
        phases: Watch over its phases.
    """

    job: NodeJob
    attempt: int
    places: tuple[tuple[int, int], ...]
    owner: int
    known: Usage = field(default_factory=Usage)
    seen: Usage = field(default_factory=Usage)
    told_s: float = 0.0
    keeps_lane: str = ""
    spent_s: dict[int, float] = field(default_factory=dict)
    measured_s: float = 0.0
    command: int = 0
    phases: PhaseWatch = field(default_factory=PhaseWatch)

    @property
    def key(self) -> str:
        """Key of the attempt in the samples."""
        return samples.attempt_key(self.job.spec.name, self.attempt)

    def is_news(self, usage: Usage, now_s: float) -> bool:
        """Whether the core needs to know of this usage: progress, memory that has grown, or a lane that is kept."""
        before = self.known
        if usage.peak_bytes > min(_GROWTH * before.peak_bytes, before.peak_bytes + _GROWN_BYTES):
            return True
        if usage.kept_bytes > before.kept_bytes + KEPT_ALLOWANCE_BYTES or usage.keeps_lane != before.keeps_lane:
            return True
        more, late = usage.done - before.done, now_s - self.told_s > _PROGRESS_AT_LEAST_S
        share = _PROGRESS_SHARE if self.job.spec.service is None else _ANSWERS_SHARE
        return bool(more) and (more >= share * before.done or late)


class Attempts:
    """Attempts in progress, and the tables of the run's lanes.

    Attributes:
        live: Attempts in progress, by job.
        tables: Table of each open lane, by number.
        moving: Moves of jobs between lanes.
        context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
    """

    def __init__(
        self,
        shared: Path,
        places: int,
        send: Callable[[MoveAttempt], None],
        tell: Callable[[Callable[..., Event]], None],
        context_bytes: Callable[[str], int] = lambda job_class: 0,
        clock: Clock = REAL,
    ) -> None:
        """No attempt, and no lane yet.

        Args:
            shared: Private folder in memory, for the tables.
            places: Most jobs that the core lets into a lane.
            send: Sends a message to the supervisor.
            tell: Reports an event to the core.
            context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
            clock: Time of the run.
        """
        self.context_bytes, self._clock = context_bytes, clock
        self.live: dict[str, LiveAttempt] = {}
        self.tables: dict[int, LaneTable] = {}
        self.moving = Moving(self.tables, self.live, places, send, tell)
        self._shared = shared
        self._device_of: dict[int, str] = {}
        self._ended: dict[str, dict[str, AttemptProgress]] = defaultdict(dict)
        self._footprints = Footprints()

    # Services

    def limit_batches(self, device: DeviceInfo, most: int) -> None:
        """Tell the services of a device the largest batch that they may form; 0 for any that their jobs allow."""
        for name, own in self.live.items():
            if own.job.spec.service is not None and self._is_on(own, device):
                self.slot(name).most_batch = most

    # Lanes

    def open_lane(self, command: OpenLane, tell_of_hung: Callable[[int], None], is_closed: bool = False) -> None:
        """Make the table of a lane.

        Args:
            tell_of_hung: Called with a process that is stopped while it holds the lock of the table.
            is_closed: Whether another run has the device now.

        Raises:
            UnfitEnvironment: The table cannot be written.
        """
        try:
            table = LaneTable.create(lane_path(self._shared, command.lane), clock_s=self._clock.monotonic_s)
        except OSError as error:
            raise UnfitEnvironment(
                f"cannot write the table of a lane in {self._shared}: {error.strerror or error}",
                f"make room in {self._shared.parent} (docker: --shm-size), "
                "or lift the limit on the size of files (`ulimit -f`)",
            ) from error
        table.tell_of_hung(tell_of_hung)
        if is_closed:
            table.close_turns(True)
        self.tables[command.lane], self._device_of[command.lane] = table, command.device

    def device_of(self, lane: int) -> str:
        """Name of the device of a lane."""
        return self._device_of[lane]

    def tables_of(self, device: str) -> dict[int, LaneTable]:
        """Tables of the lanes of a device, by number."""
        return {lane: table for lane, table in self.tables.items() if self._device_of[lane] == device}

    def set_shares(self, command: SetShares) -> None:
        """Write the order of the jobs of a lane into its table."""
        claims = {}
        for share in command.shares:
            own = self.live.get(share.job)
            for lane, slot in own.places if own is not None else ():
                if lane == command.lane:
                    claims[slot] = (share.rank, share.weight)
        self.tables[command.lane].claim(claims)

    # Attempts

    def gang_table(self, own: LiveAttempt) -> str:
        """Path of a new table for the ranks of an attempt. The ranks of a part of a gang end together, too.

        Raises:
            UnfitEnvironment: The table cannot be written.
        """
        path = self._gang_path(own.command)
        try:
            GangTable.create(path, len(own.places)).close()
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {path}: {error.strerror or error}") from error
        return str(path)

    def _gang_path(self, command: int) -> Path:
        return self._shared / f"gang{command}"

    def start(self, command: StartJob, job: NodeJob) -> LiveAttempt:
        """Prepare a slot in each lane of the command for an attempt."""
        # One order for all gangs: each takes the turn of its lanes in this order, so that no two wait for each other.
        places = tuple((lane, self.moving.free_slots(lane)[0]) for lane in sorted(command.lanes))
        for lane, slot in places:
            self.tables[lane].seat(slot, command.id)
        own = self.live[command.job] = LiveAttempt(job, command.attempt, places, command.id, command=command.id)
        if len(places) > 1 and not job.has_ranks:
            own.keeps_lane = f"one process uses {counted(len(places), 'device')}"
        if job.part is not None:
            own.keeps_lane = f"its ranks run on {counted(job.part.nodes, 'node')}"
        return own

    def give_up(self, command: int) -> None:
        """Free the slots of an attempt that was not launched, by the ID of its command."""
        name = next(name for name, own in self.live.items() if own.command == command)
        self._gang_path(command).unlink(missing_ok=True)
        self.free(self.live.pop(name))
        self.moving.ended(name)

    def free(self, own: LiveAttempt) -> None:
        """Free the slots of an attempt that has no process any more."""
        for lane, slot in own.places:
            self.tables[lane].free(slot, own.owner)

    def end(self, ended: Ended) -> Usage | None:
        """Take out an attempt that has ended, and return its usage; None if it is not in progress."""
        own = self.live.get(ended.job)
        if own is None or own.attempt != ended.attempt:
            return None
        del self.live[ended.job]
        if own.job.has_ranks:
            self._gang_path(own.command).unlink(missing_ok=True)
        usage = self._with_context(own, Usage(**ended.usage)) if ended.usage else own.seen
        # The kernel's peak is that of one process, and the job may have several.
        peak_bytes = max(usage.peak_bytes, self._footprints.largest_seen_bytes(own.key))
        usage = replace(usage, peak_bytes=peak_bytes, keeps_lane=own.keeps_lane)
        left_s = usage.cpu_s - sum(own.spent_s.get(lane, 0.0) for lane, _ in own.places)
        for lane, _ in own.places:
            part = replace(usage, cpu_s=own.spent_s.get(lane, 0.0) + left_s / len(own.places))
            self._ended[self._device_of[lane]][own.key] = _progress(own, lane, part, None)
        self._footprints.forget(own.key)
        return usage

    # Readings

    def usage(self, name: str) -> Usage:
        """Usage so far of a job in progress, from the table of its lane."""
        own = self.live[name]
        for _ in range(2):  # twice, since the job may move to another lane meanwhile
            slot = self.slot(name)
            usage = Usage(**attempt_process.usage(slot, self._clock.monotonic_s))
            if slot.seat != SlotState.EMPTY:
                # A read within a turn may exceed its final value by a few microseconds, and totals must not decrease.
                usage = self._with_context(own, usage)
                own.seen = replace(usage, held_s=max(usage.held_s, own.seen.held_s), keeps_lane=own.keeps_lane)
                break
        return own.seen  # the last value read, if the job has ended and its end is not reported yet

    def _with_context(self, own: LiveAttempt, usage: Usage) -> Usage:
        """Usage with the context of a job on a GPU, which tells the memory of its allocator."""
        if not usage.kept_bytes:
            return usage
        context_bytes = self.context_bytes(own.job.spec.job_class)
        peak_bytes, kept_bytes = usage.peak_bytes + context_bytes, usage.kept_bytes + context_bytes
        return replace(usage, peak_bytes=peak_bytes, kept_bytes=kept_bytes)

    def slot(self, name: str) -> Slot:
        """Present slot of a job in progress; of several, the one that has its counters."""
        self.moving.follow(name)
        lane, index = self.live[name].places[0]
        return self.tables[lane].slots[index]

    def _process_on(self, name: str, device: DeviceInfo) -> tuple[int, bool]:
        """Process of a job on a device, as `Slot.process` tells it: that of the rank there, if the job has ranks."""
        own = self.live[name]
        if not own.job.has_ranks:
            return self.slot(name).process()
        lane, index = next(place for place in own.places if self._device_of[place[0]] == device.name)
        return self.tables[lane].slots[index].process()

    def limit(self, command: LimitMemory, allocator_bytes: int) -> BoundaryRequest | None:
        """Ask a job for another memory limit at its next boundary; call again until the answer is there.

        Args:
            command: Command of the core.
            allocator_bytes: Part of the memory that the allocator of the job may take.

        Returns:
            `LIMIT` until there is an answer, `NOTHING` if the limit is in force, `UNFIT` if the job keeps more than
            that. None if the attempt is over.
        """
        own = self.live.get(command.job)
        if own is None or own.attempt != command.attempt:
            return None
        slot = self.slot(command.job)
        if slot.limited_bytes == allocator_bytes:
            return BoundaryRequest.NOTHING
        if slot.ask == BoundaryRequest.UNFIT:
            slot.ask = BoundaryRequest.NOTHING
            return BoundaryRequest.UNFIT
        if slot.ask == BoundaryRequest.NOTHING:  # not asked yet, or the job has moved to another slot meanwhile
            slot.cap_bytes = allocator_bytes
            slot.ask = BoundaryRequest.LIMIT
        return BoundaryRequest.LIMIT

    def unlimit(self, command: LimitMemory) -> None:
        """Take back what `limit` has asked of a job, if the attempt goes on."""
        own = self.live.get(command.job)
        if own is not None and own.attempt == command.attempt and self.slot(command.job).ask == BoundaryRequest.LIMIT:
            self.slot(command.job).ask = BoundaryRequest.NOTHING

    def largest_seen_bytes(self, name: str) -> int:
        """Result of the last `peak_bytes` of a job; 0 without one."""
        return self._footprints.largest_seen_bytes(self.live[name].key)

    def peak_bytes(self, name: str) -> int:
        """Largest memory (bytes) seen of a job on processors, or of its first rank; 0 without a process of its own."""
        pid, is_fused = self.slot(name).process()
        return 0 if is_fused or not pid else self._footprints.peak_bytes(self.live[name].key, processes.family(pid))

    def with_children_on(self, device: DeviceInfo, on_device: Collection[int]) -> list[LiveAttempt]:
        """Attempts on a device of which other processes than the first use it.

        Args:
            on_device: Processes on the device, as far as its driver reports them.
        """
        shown = {name: self._process_on(name, device) for name, own in self.live.items() if self._is_on(own, device)}
        own_pids = {name: pid for name, (pid, is_fused) in shown.items() if pid and not is_fused}
        others = set(on_device) - set(own_pids.values())
        if not others:  # the usual case, which needs no look at families
            return []
        return [self.live[name] for name, pid in own_pids.items() if not others.isdisjoint(processes.family(pid))]

    def progress_on(self, device: DeviceInfo, on_device: Mapping[int, int]) -> dict[str, AttemptProgress]:
        """Progress of each attempt on a device, and once more of each attempt that ended since the last call.

        Args:
            on_device: Memory (bytes) of each process on the device, as far as its driver reports it.
        """
        done = self._ended.pop(device.name, {})
        names = [name for name, own in self.live.items() if self._is_on(own, device)]
        usages = {name: self.usage(name) for name in names}
        shown = {name: self._process_on(name, device) for name in names}  # once, as processes come and go
        sharing = Counter(pid for pid, _ in shown.values())
        for name in names:
            own, usage, (pid, is_fused) = self.live[name], usages[name], shown[name]
            family = processes.family(pid)
            spent_s = usage.cpu_s if is_fused else max(processes.processor_s(family), usage.cpu_s)
            if not own.job.has_ranks:  # the kernel does not tell by partition what one process has used
                spent_s /= len(own.places)
            reported = None if device.on_processors else on_device
            memory_bytes = self._footprints.bytes(own.key, family, reported, sharing[pid])
            lane = next(lane for lane, _ in own.places if self._device_of[lane] == device.name)
            own.spent_s[lane] = spent_s
            done[own.key] = _progress(own, lane, replace(usage, cpu_s=spent_s), memory_bytes)
        return done

    def _is_on(self, own: LiveAttempt, device: DeviceInfo) -> bool:
        return any(self._device_of[lane] == device.name for lane, _ in own.places)


def _progress(own: LiveAttempt, lane: int, usage: Usage, memory_bytes: int | None) -> AttemptProgress:
    """Progress of an attempt in one lane, with the processor time of `usage`. Iterations count in the first lane."""
    is_first = lane == own.places[0][0] and own.job.has_first_rank
    return AttemptProgress(
        lane,
        usage.held_s,
        usage.iterations if is_first else 0,
        usage.eval_iterations if is_first else 0,
        usage.cpu_s,
        memory_bytes,
    )
