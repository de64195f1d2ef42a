"""Memory that running jobs give back: caches and limits of their allocators. Starts wait until they have done so.

::

    core ──SetCaching──► word in the device's tables ──► waiting jobs empty their caches, the holder at its hand-over
         ──LimitMemory─► word in the job's slot ──► the job changes the limit of its allocator at its next boundary
         ──StartJob────► held ...........................................│
         ◄──Done──────── no idle job has a cache, each limit has an answer ╯ ──► the start goes to the supervisor

The started job was promised memory that the others may take until then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ecoshare.common.clock import loop_s
from ecoshare.core.commands import LimitMemory, SetCaching
from ecoshare.core.events import Done, Event, Refused
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.table_layout import BoundaryRequest
from ecoshare.runtime.attempts import Attempts

_LOOK_S, _RARELY_S = 0.01, 0.25
_ANSWERS_WITHIN_S = 10.0
"""Longest time (s) to wait for a job that comes to no boundary. Then it keeps its limit, and the core decides anew."""


@dataclass(slots=True)
class MemoryRelease:
    """Carries out `SetCaching` and `LimitMemory` commands.

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
        wait_s = _LOOK_S
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
            await asyncio.sleep(_LOOK_S)
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
