"""Cache release: jobs of a device empty the caches of their allocators, and starts wait until they have done so.

::

    core ──SetCaching──► word in the device's tables ──► waiting jobs empty their caches, the holder at its hand-over
         ──StartJob────► held ...........................................│
         ◄──Done──────── no idle job has a cache ◄───────────────────────╯ ──► the start goes to the supervisor

The started job was promised memory that the caches take until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ecoshare.core.commands import SetCaching
from ecoshare.core.events import Done, Event
from ecoshare.lane.lane_table import LaneTable
from ecoshare.lane.messages import LaunchAttempt

_LOOK_S, _RARELY_S = 0.01, 0.25


@dataclass(slots=True)
class CacheRelease:
    """Carries out `SetCaching` commands.

    Attributes:
        tables_of: Tables of the lanes of a device, by number.
        send: Sends a launch to the supervisor.
        tell: Reports an event to the core.
        begin: Begins a task that ends with the run.
    """

    tables_of: Callable[[str], Mapping[int, LaneTable]]
    send: Callable[[LaunchAttempt], None]
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]
    _releasing: dict[str, list[int]] = field(default_factory=dict)  # commands without an answer, by device
    _held: dict[str, list[tuple[LaunchAttempt, set[str]]]] = field(default_factory=dict)

    def set_caching(self, command: SetCaching) -> None:
        """Start to carry out a command. The answer comes when its rule is in force."""
        for table in self.tables_of(command.device).values():
            table.set_caching(command.is_kept)
        commands = self._releasing.setdefault(command.device, [])
        commands.append(command.id)
        if command.is_kept:
            self._finish(command.device)
        elif len(commands) == 1:
            self.begin(self._watch(command.device))

    def is_releasing(self, device: str) -> bool:
        """Whether jobs of a device still have caches that they may not keep, so that no other job may take memory."""
        return device in self._releasing

    def launch(self, launch: LaunchAttempt, devices: set[str]) -> None:
        """Launch an attempt on these devices, as soon as no idle job there has a cache that it may not keep."""
        device = next((device for device in devices if device in self._releasing), None)
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

    async def _watch(self, device: str) -> None:
        wait_s = _LOOK_S
        while device in self._releasing:
            if all(table.caches_are_emptied for table in self.tables_of(device).values()):
                self._finish(device)
            await asyncio.sleep(wait_s)
            wait_s = min(_RARELY_S, 1.1 * wait_s)

    def _finish(self, device: str) -> None:
        """Answer the commands of a device, and send the launches that waited for it."""
        for command in self._releasing.pop(device):
            self.tell(partial(Done, command=command))
        for launch, devices in self._held.pop(device, []):
            self.launch(launch, devices)
