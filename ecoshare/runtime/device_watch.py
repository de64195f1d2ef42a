"""Watches whether the devices of a run still work.

::

    once a second            ──► health of each device ──► DeviceFailed
    an attempt has failed    ──► health of its devices ──► DeviceFailed, and then its JobExited
                                                           so the core hears of the device first

A device that has failed is not asked again. The joules up to then are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from ecoshare.core.events import DeviceFailed, Event
from ecoshare.lane.messages import Ended
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.device_session import DeviceSession
from ecoshare.values.attempt import Outcome

_LOOK_S = 1.0
"""Time (s) between two looks at a device."""

_NEEDS_NO_LOOK = (Outcome.COMPLETED, Outcome.PRUNED, Outcome.STOPPED, Outcome.MOVED_OUT)


class DeviceWatch:
    """Watch over the devices of a run.

    Attributes:
        failed: Reason of each failure, in words, by the name of the device.
    """

    def __init__(
        self,
        sessions: Mapping[str, DeviceSession],
        attempts: Attempts,
        notes: list[str],
        now_s: Callable[[], float],
        tell: Callable[[Callable[..., Event]], None],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Watch nothing yet.

        Args:
            sessions: Session of each device, by its name.
            attempts: Attempts in progress.
            notes: Notes for the user, one line each; facts about devices are added.
            now_s: Time (s) since the run was opened.
            tell: Reports an event to the core.
            begin: Begins a task that ends with the run.
        """
        self._samplers = {name: each.sampler for name, each in sessions.items() if not each.device.on_processors}
        self._attempts, self._notes, self._now_s, self._tell, self._begin = attempts, notes, now_s, tell, begin
        self.failed: dict[str, str] = {}

    async def keep(self) -> None:
        """Look at all devices once a second, until cancelled. Processors do not fail alone."""
        while self._samplers:
            await asyncio.sleep(_LOOK_S)
            await self._look(self._samplers)

    def ended(self, ended: Ended, pass_on: Callable[[Ended], None]) -> None:
        """Pass on the end of an attempt, after a look at its devices if it has failed."""
        own = self._attempts.live.get(ended.job)
        devices = [name for name in self._devices(own) if name in self._samplers and name not in self.failed]
        if devices and Outcome(ended.outcome) not in _NEEDS_NO_LOOK:
            self._begin(self._look_first(devices, ended, pass_on))
        else:
            pass_on(ended)

    async def _look_first(self, devices: list[str], ended: Ended, pass_on: Callable[[Ended], None]) -> None:
        await self._look(devices)
        pass_on(ended)

    def verdict(self, own: LiveAttempt | None, outcome: Outcome, reason: str) -> tuple[Outcome, str]:
        """Outcome and reason of an attempt that has ended: the failure of its device is no fault of its own."""
        name = next(filter(self.failed.__contains__, self._devices(own)), None)
        if name is None or outcome.is_the_end:
            return outcome, reason
        said = "" if outcome is Outcome.STOPPED or not reason else f"; it said: {reason}"
        return Outcome.DEVICE_FAILED, f"{name} failed: {self.failed[name]}{said}"

    def _devices(self, own: LiveAttempt | None) -> list[str]:
        return [] if own is None else [self._attempts.device_of(lane) for lane, _ in own.places]

    async def _look(self, devices: Iterable[str]) -> None:
        for name in devices:
            if name in self.failed:
                continue
            sampler = self._samplers[name]
            health = await sampler.health()
            note = f"{name}: {health.note}"
            if health.note and note not in self._notes:
                self._notes.append(note)
            if health.failure and name not in self.failed:  # two looks may have been under way
                self.failed[name] = health.failure
                await sampler.take(self._now_s)  # a GPU that is too hot still counts its joules
                sampler.fail(f"the device failed: {health.failure}")
                self._tell(partial(DeviceFailed, device=name, reason=health.failure))
