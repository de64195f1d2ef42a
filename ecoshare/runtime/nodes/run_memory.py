"""A run that shares the memory of GPUs with other runs of the machine.

::

    other runs ◄──claims, wants──► files ──► RunMemory ──MemoryLeft──► core    starts no job beyond what is left
                                                       ◄─ShareMemory──         what its jobs hold, and would need

Each run computes the parts of all from what they want. One that has more than its part leaves the rest as its jobs end,
or empty their caches. It claims more once the others have left that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ecoshare.base.clock import loop_s
from ecoshare.core.commands import ShareMemory
from ecoshare.core.device_share import DeviceShare
from ecoshare.core.events import Done, Event
from ecoshare.devices.occupancy import MemoryClaim

_LOOK_S = 0.2
"""Time (s) between two looks at the claims of other runs."""


class RunMemory:
    """Shares the memory of the GPUs of a run with other runs."""

    def __init__(
        self,
        claims: Mapping[str, MemoryClaim],
        most_bytes: Mapping[str, int],
        tell: Callable[[Callable[..., Event]], None],
        warn: Callable[[str, str], None],
    ) -> None:
        """Claim nothing yet.

        Args:
            claims: Claim to each GPU that other runs may share, by its name.
            most_bytes: Memory (bytes) of each that the run may use at most.
            tell: Reports an event to the core.
            warn: Tells the user of a fault.
        """
        self._shared = {name: DeviceShare(name, claim, most_bytes[name]) for name, claim in claims.items()}
        self._tell, self._warn = tell, warn

    async def keep(self) -> None:
        """Look at the claims of other runs until this is cancelled."""
        while self._shared:
            for each in self._shared.values():
                self._look(each)
            await asyncio.sleep(_LOOK_S)

    def share(self, command: ShareMemory) -> None:
        """Carry out a command of the core."""
        with contextlib.suppress(KeyError):
            self._shared[command.device].answer = command
        self._tell(partial(Done, command=command.id))

    def _look(self, shared: DeviceShare) -> None:
        try:
            if (left := shared.look(loop_s())) is not None:
                self._tell(lambda at_s: replace(left, at_s=at_s))
        except OSError as error:
            self._warn("memory", f"{shared.device}: its memory cannot be shared with other runs: {error.strerror}")
