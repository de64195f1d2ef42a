"""Memory of running jobs: caches that they give back, and jobs that are parked on the host."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ecoshare.base import machine_memory
from ecoshare.base.attempt import Outcome
from ecoshare.base.clock import loop_s
from ecoshare.core.commands import LimitMemory, ParkJob, ResumeJob, SetCaching
from ecoshare.core.events import Done, Event, Parked, Refused, Resumed
from ecoshare.devices.memory_transfer import MemoryTransfer, TransferFault
from ecoshare.devices.registry import vendor
from ecoshare.jobs.quantities import format_size
from ecoshare.lane import own_memory
from ecoshare.lane.messages import GRACE_S, Ended, LaunchAttempt, StopAttempt
from ecoshare.lane.own_memory import MappedRange, mappings
from ecoshare.lane.tables.table_layout import BoundaryRequest, ParkRequest, SlotState
from ecoshare.record.samples import attempt_key
from ecoshare.runtime.measuring.device_session import DeviceSession
from ecoshare.runtime.nodes.attempts import Attempts, LiveAttempt
from ecoshare.runtime.nodes.warm_server import environment

_RELEASE_LOOK_S, _RARELY_S = 0.01, 0.25
_ANSWERS_WITHIN_S = 10.0
"""Longest time (s) to wait for a job that comes to no boundary. Then it keeps its limit, and the core decides anew."""


@dataclass(slots=True)
class MemoryRelease:
    """Carries out `SetCaching` and `LimitMemory` commands.

    ::

        core ──SetCaching──► word in the device's tables ──► waiting jobs empty their caches, the holder does at its end
             ──LimitMemory─► word in the job's slot ──► the job changes the limit of its allocator at its next boundary
             ──StartJob────► held ...........................................│
             ◄──Done──────── no idle job has a cache, each limit has an answer ╯ ──► the start goes to the supervisor

    The started job was promised memory that the others may take until then.

    Attributes:
        attempts: Attempts in progress, and the lanes' tables.
        send: Sends a launch to the supervisor.
        tell: Reports an event to the core.
        begin: Begins a task that ends with the run.
    """

    attempts: Attempts
    send: Callable[[LaunchAttempt], None]
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]
    _emptying: dict[str, list[int]] = field(default_factory=dict)  # commands without an answer, by device
    _limiting: Counter[str] = field(default_factory=Counter)  # number of limits without an answer, by device
    _held: dict[str, list[tuple[LaunchAttempt, set[str]]]] = field(default_factory=dict)

    def set_caching(self, command: SetCaching) -> None:
        """Start to carry out a command. The answer comes when its rule is in force."""
        for table in self.attempts.tables_of(command.device).values():
            table.set_caching(command.is_kept)
        commands = self._emptying.setdefault(command.device, [])
        commands.append(command.id)
        if command.is_kept:
            self._emptied(command.device)
        elif len(commands) == 1:
            self.begin(self._empty(command.device))

    def limit_memory(self, command: LimitMemory) -> None:
        """Start to change the limit of a job. The answer to the core comes when the job has answered."""
        own = self.attempts.live.get(command.job)
        if own is None:
            return  # the end of the attempt is already on its way to the core
        device = self.attempts.device_of(own.places[0][0])
        self._limiting[device] += 1
        allocator_bytes = max(0, command.cap_bytes - self.attempts.context_bytes(own.job.spec.job_class))
        self.begin(self._limit(command, device, allocator_bytes))

    def is_releasing(self, device: str) -> bool:
        """Whether jobs of a device still have to give memory back, so that no other job may take any."""
        return device in self._emptying or bool(self._limiting[device])

    def launch(self, launch: LaunchAttempt, devices: set[str]) -> None:
        """Launch an attempt on these devices, as soon as no job there has memory that it was told to give back."""
        device = next((device for device in devices if self.is_releasing(device)), None)
        if device is None:
            self.send(launch)
        else:
            self._held.setdefault(device, []).append((launch, devices))

    def give_up(self, job: str) -> LaunchAttempt | None:
        """Take back the launch of a job; None if it is not held."""
        for held in self._held.values():
            for launch, devices in held:
                if launch.job == job:
                    held.remove((launch, devices))
                    return launch
        return None

    async def _empty(self, device: str) -> None:
        wait_s = _RELEASE_LOOK_S
        while device in self._emptying:
            if all(table.caches_are_emptied for table in self.attempts.tables_of(device).values()):
                self._emptied(device)
            await asyncio.sleep(wait_s)
            wait_s = min(_RARELY_S, 1.1 * wait_s)

    def _emptied(self, device: str) -> None:
        for command in self._emptying.pop(device):
            self.tell(partial(Done, command=command))
        self._go_on(device)

    async def _limit(self, command: LimitMemory, device: str, allocator_bytes: int) -> None:
        until_s, error = loop_s() + _ANSWERS_WITHIN_S, "the job keeps more memory than that"
        while (answer := self.attempts.limit(command, allocator_bytes)) is BoundaryRequest.LIMIT:
            if loop_s() > until_s:
                self.attempts.unlimit(command)
                answer, error = BoundaryRequest.UNFIT, f"the job came to no boundary in {_ANSWERS_WITHIN_S:g} s"
                break
            await asyncio.sleep(_RELEASE_LOOK_S)
        if answer is BoundaryRequest.UNFIT:
            self.tell(partial(Refused, command=command.id, error=error))
        elif answer is not None:
            self.tell(partial(Done, command=command.id))
        self._limiting[device] -= 1
        self._go_on(device)

    def _go_on(self, device: str) -> None:
        """Send the launches that waited for a device, if its jobs have given back what they were told to."""
        if not self.is_releasing(device):
            for launch, devices in self._held.pop(device, []):
                self.launch(launch, devices)


_PARKING_LOOK_S = 0.01
_RESTS_WITHIN_S = 60.0
"""Longest time (s) to wait for the end of an iteration, or for a job that loads data. Other jobs wait for its place."""

_ROOM_WITHIN_S = 30.0
"""Longest time (s) to wait for device memory that other programs take. A restore without room would end the job."""

_SPARE_BYTES = 256 << 20
"""Memory (bytes) that is left free on the host and on the device beside the memory of the job."""

_RESERVED_WITHIN_S = 10.0
"""Longest time (s) to wait until a process has reserved the addresses of memory that was moved."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """Memory that is on the host.

    Attributes:
        device_bytes: Memory (bytes) that it takes on the device; 0 if unknown.
        mappings: Mappings of the process when its memory was on the device.
    """

    device_bytes: int
    mappings: list[MappedRange]


class _RunsOn(Exception):
    """The job is not parked and runs on. The message is the reason in words."""


class _Over(Exception):
    """The attempt has ended or is about to: its `JobExited` is the answer to the core."""


@dataclass(slots=True)
class LiveParking:
    """Carries out commands that park and resume jobs.

    ::

        core ──ParkJob────► word in the lane's table ──► the job waits without its turn, with its cache empty
                                         transfer of the vendor ──► memory on the host
             ◄──Parked─────  place free
             ──ResumeJob──► room on the device? ──► transfer back ──► word in the table: the job wants its turn again
             ◄──Resumed────

    A job that cannot be parked runs on. If its memory does not come back, its attempt ends, and another one follows.

    Attributes:
        attempts: Attempts in progress.
        sessions: Session of each device.
        transfers: Transfer of memory on each device; no entry if no job is parked there.
        is_releasing: Whether caches of a device are being emptied, so that no job may take memory there yet.
        send: Sends a message to the supervisor.
        tell: Reports an event to the core.
        begin: Begins a task that ends with the run.
    """

    attempts: Attempts
    sessions: Mapping[str, DeviceSession]
    transfers: Mapping[str, MemoryTransfer]
    is_releasing: Callable[[str], bool]
    send: Callable[[StopAttempt], None]
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]
    _moved: dict[str, _Moved] = field(default_factory=dict)  # key of an attempt: its memory
    _lost: dict[tuple[str, int], str] = field(default_factory=dict)  # reason in words, by job and attempt

    def park(self, command: ParkJob) -> None:
        """Start to park a job. The answer to the core comes when its memory is on the host."""
        self.begin(self._park(command))

    def resume(self, command: ResumeJob) -> None:
        """Start to resume a parked job. The answer to the core comes when its memory is back."""
        self.begin(self._resume(command))

    def verdict(self, ended: Ended) -> tuple[Outcome, str]:
        """Outcome of an attempt that has ended, and the reason: an attempt that lost its memory was ended for that."""
        self._moved.pop(attempt_key(ended.job, ended.attempt), None)
        outcome, lost = Outcome(ended.outcome), self._lost.pop((ended.job, ended.attempt), "")
        return (Outcome.NOT_RESUMED, lost) if lost and outcome is Outcome.STOPPED else (outcome, ended.reason)

    async def _park(self, command: ParkJob) -> None:
        try:
            own = self._attempt(command)
            self._must_be_fit(own)
            began_s = await self._at_rest(command, own)
            await self._move_out(command, own)
        except _Over:
            return
        except _RunsOn as reason:
            if self.attempts.live.get(command.job) is own:
                self._unpark(own)
                self.tell(partial(Refused, command=command.id, error=str(reason)))
            return
        took_s = loop_s() - began_s
        usage = self.attempts.usage(command.job)
        usage = replace(usage, peak_bytes=max(usage.peak_bytes, own.known.peak_bytes))
        self.tell(partial(Parked, command=command.id, usage=usage, took_s=took_s))

    def _must_be_fit(self, own: LiveAttempt) -> None:
        self.attempts.moving.follow(own.job.spec.name)
        if len(own.places) != 1:
            raise _RunsOn("a job on several devices keeps its lanes")
        if own.keeps_lane:
            raise _RunsOn(f"the job keeps its lane: {own.keeps_lane}")
        lane, _ = own.places[0]
        if not self.attempts.moving.has_spare_slot(lane):
            raise _RunsOn("the lane has no slot left for another job")

    async def _at_rest(self, command: ParkJob, own: LiveAttempt) -> float:
        """Wait until the job waits in its lane without a cache.

        Returns:
            Monotonic time (s) at which the job began to give memory back.
        """
        until_s, began_s = loop_s() + _RESTS_WITHIN_S, 0.0
        while True:
            self._attempt(command)
            slot = self.attempts.slot(command.job)  # the job may have been on its way to another lane
            if slot.parked == ParkRequest.READY:
                return began_s or loop_s()
            if slot.parked == ParkRequest.NOTHING:
                lane, index = own.places[0]
                self.attempts.tables[lane].park(index, own.owner)
            if own.keeps_lane:
                raise _RunsOn(f"the job keeps its lane: {own.keeps_lane}")
            if loop_s() > until_s:
                raise _RunsOn(f"it has not come to the end of an iteration in {_RESTS_WITHIN_S:g} s")
            if slot.seat == SlotState.WAITING and not began_s:
                began_s = loop_s()
            await asyncio.sleep(_PARKING_LOOK_S)

    async def _move_out(self, command: ParkJob, own: LiveAttempt) -> None:
        """Move the memory of a job that is at rest to the host."""
        device, pid = self._device(own), self._pid(own)
        on_device = await self.sessions[device].sampler.on_device()
        self._attempt(command)
        # In some containers the driver names the right process with 0 bytes.
        moved_bytes = on_device.get(pid) or self.attempts.usage(command.job).kept_bytes
        free_bytes = machine_memory.available_bytes()
        if moved_bytes and moved_bytes + _SPARE_BYTES > free_bytes:
            raise _RunsOn(f"its memory is {format_size(moved_bytes)}, and the host has {format_size(free_bytes)} free")
        before = _mappings(pid)
        try:
            await self.transfers[device].park(pid)
        except TransferFault as fault:
            self._attempt(command)
            if fault.runs_on:
                raise _RunsOn(str(fault)) from fault
            raise self._ends(own, f"its memory could not be moved to the host: {fault}") from fault
        self._attempt(command)
        if any(map(own_memory.is_devices, before)):
            await self._reserved(command, own)
        moved = self._moved[own.key] = _Moved(moved_bytes, before)
        self._must_be_untouched(own, moved)

    async def _reserved(self, command: ParkJob, own: LiveAttempt) -> None:
        """Let the process reserve the addresses of its memory. One that is stopped may do so when it goes on."""
        lane, index = own.places[0]
        self.attempts.tables[lane].tell_moved(index, own.owner)
        until_s = loop_s() + _RESERVED_WITHIN_S
        while self.attempts.slot(command.job).parked != ParkRequest.RESERVED and loop_s() < until_s:
            await asyncio.sleep(_PARKING_LOOK_S)
            self._attempt(command)

    def _must_be_untouched(self, own: LiveAttempt, moved: _Moved) -> None:
        """End an attempt of which a thread has mapped memory of its own where that of the device was.

        The driver would map over it when the job is resumed, and the job would go on with wrong values.
        """
        if own_memory.taken(moved.mappings, _mappings(self._pid(own))):
            raise self._ends(own, "another thread of it has mapped memory where that of the device was")

    async def _resume(self, command: ResumeJob) -> None:
        try:
            own = self._attempt(command)
            device = self._device(own)
            while self.is_releasing(device):
                await asyncio.sleep(_PARKING_LOOK_S)
            began_s = loop_s()
            await self._move_back(command, own, device)
        except _Over:
            return
        self._unpark(own)
        self.tell(partial(Resumed, command=command.id, took_s=loop_s() - began_s))

    async def _move_back(self, command: ResumeJob, own: LiveAttempt, device: str) -> None:
        moved = self._moved.pop(own.key, _Moved(0, []))
        if moved.device_bytes and not await self._has_room(moved.device_bytes, device):
            raise self._ends(own, "its memory could not come back: other programs have taken that of the device")
        self._attempt(command)
        self._must_be_untouched(own, moved)
        try:
            await self.transfers[device].resume(self._pid(own))
        except TransferFault as fault:
            self._attempt(command)
            raise self._ends(own, f"its memory could not come back: {fault}") from fault
        self._attempt(command)

    async def _has_room(self, moved_bytes: int, device: str) -> bool:
        """Wait until the device has memory for a parked job. Other programs may use the device, too."""
        session, until_s = self.sessions[device], loop_s() + _ROOM_WITHIN_S
        while True:
            used_bytes = await session.sampler.calls.answer(session.sampler.used_bytes)
            if used_bytes is None or used_bytes + moved_bytes + _SPARE_BYTES <= session.device.total_bytes:
                return True
            if loop_s() > until_s:
                return False
            await asyncio.sleep(_PARKING_LOOK_S)

    def _ends(self, own: LiveAttempt, reason: str) -> _Over:
        """End an attempt of which the memory is lost."""
        name = own.job.spec.name
        self._lost[name, own.attempt] = reason
        self.send(StopAttempt(name, own.attempt, True, reason, GRACE_S, False))
        return _Over()

    def _attempt(self, command: ParkJob | ResumeJob) -> LiveAttempt:
        """Attempt of a command.

        Raises:
            _Over: It has ended.
        """
        own = self.attempts.live.get(command.job)
        if own is None or own.attempt != command.attempt:
            raise _Over
        return own

    def _device(self, own: LiveAttempt) -> str:
        return self.attempts.device_of(own.places[0][0])

    def _pid(self, own: LiveAttempt) -> int:
        lane, slot = own.places[0]
        return int(self.attempts.tables[lane].slots[slot].pid)

    def _unpark(self, own: LiveAttempt) -> None:
        lane, slot = own.places[0]
        self.attempts.tables[lane].unpark(slot, own.owner)


def _mappings(pid: int) -> list[MappedRange]:
    """Mappings of a process; none of one that has ended, or that cannot be examined."""
    try:
        return list(mappings(pid))
    except OSError:
        return []


def transfers(sessions: Iterable[DeviceSession], token: str) -> dict[str, MemoryTransfer]:
    """Transfer of memory on the device of each session.

    Args:
        token: Token that marks the processes of the run.

    Raises:
        UnfitEnvironment: Memory cannot be moved there.
    """
    return {
        each.device.name: vendor(each.device.vendor).memory_transfer(each.device, environment(token))
        for each in sessions
    }
