"""Learns during a run which jobs keep their lanes because their child processes use the device.

::

    note in the folder of the job       ──► the attempt keeps its lane
    child of a job among the processes
    of the GPU, and no note             ──KeepLane──► supervisor ──signal──► job ──► note
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ecoshare.lane import kept_lane
from ecoshare.lane.messages import KeepLane
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.values.device import DeviceInfo

_LOOK_S = 0.5


class ChildrenWatch:
    """Watches the attempts in progress."""

    def __init__(self, folder: RunFolder, attempts: Attempts, send: Callable[[KeepLane], None]) -> None:
        """Watch without a look so far.

        Args:
            folder: The run folder.
            attempts: Attempts in progress.
            send: Sends a message to the supervisor.
        """
        self._folder, self._attempts, self._send = folder, attempts, send

    def read_note(self, own: LiveAttempt) -> None:
        """Note whether an attempt keeps its lane."""
        if not own.keeps_lane:
            own.keeps_lane = kept_lane.reason(self._folder.job(own.job.spec.name), own.attempt)

    async def keep(self, devices: Sequence[tuple[DeviceInfo, Callable[[], Awaitable[Mapping[int, int]]]]]) -> None:
        """Read the notes of all attempts, and ask attempts to keep their lanes of which children are on a GPU.

        They are asked again until their notes are there: a signal does not always wake a process that waits. This goes
        on until it is cancelled.

        Args:
            devices: Devices of the run, each with a function that returns the memory (bytes) of the processes on it.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._look(devices)

    async def _look(self, devices: Sequence[tuple[DeviceInfo, Callable[[], Awaitable[Mapping[int, int]]]]]) -> None:
        for own in self._attempts.live.values():
            self.read_note(own)
        for device, processes in devices:
            if device.on_processors or not self._attempts.live:
                continue
            on_device = await processes()
            for own in self._attempts.with_children_on(device, on_device):
                if not own.keeps_lane:
                    self._send(KeepLane(own.job.spec.name, own.attempt))
