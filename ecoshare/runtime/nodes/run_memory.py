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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ecoshare.base.clock import loop_s
from ecoshare.core.commands import ShareMemory
from ecoshare.core.events import Done, Event, MemoryLeft
from ecoshare.core.slices import MemoryWish, shared_between
from ecoshare.devices.occupancy import MemoryClaim, Occupant

_LOOK_S = 0.2
"""Time (s) between two looks at the claims of other runs."""


@dataclass(slots=True)
class DeviceShare:
    """Share of a run in the memory of one GPU.

    Attributes:
        device: Name of the GPU.
        claim: Claim of this run.
        most_bytes: Memory that the run may use at most.
        told: Memory (bytes) that the core may use, and number of other runs, as it was told last; None before that.
        number: Number of times that it was told.
        answer: Last command of the core about the GPU; None if there is none.
    """

    device: str
    claim: MemoryClaim
    most_bytes: int
    told: tuple[int, int] | None = None
    number: int = 0
    answer: ShareMemory | None = None

    def look(self, now_s: float) -> MemoryLeft | None:
        """Bring the claim up to date, and return what the core must know of that, at time 0; None if it knows.

        Args:
            now_s: Present time (s) on the clock of all runs of this machine.

        Raises:
            OSError: The claim cannot be written.
        """
        others = self.claim.others()
        if others:
            return self._tell(self._part_bytes(others, now_s), len(others))
        if self.told is not None and not self.told[1]:
            return None
        self.answer = None  # the next one that comes is told of anew
        self.claim.tell(self.most_bytes, MemoryWish(self.most_bytes, number=self.claim.wish.number))
        return self._tell(self.most_bytes, 0) if self.claim.claimed_bytes >= self.most_bytes else None

    def _part_bytes(self, others: Sequence[Occupant], now_s: float) -> int:
        """Memory (bytes) that the core may use now: the part of this run, as far as it could be claimed."""
        wish = self._wish(now_s)
        parts = shared_between(self.claim.memory_bytes, [wish, *(each.wish for each in others)])
        part_bytes = min(parts[0], self.most_bytes)
        claimed_bytes = max(part_bytes, self._held_bytes())
        if (claimed_bytes, wish) != (self.claim.claimed_bytes, self.claim.wish):
            self.claim.tell(claimed_bytes, wish)
        return min(part_bytes, self.claim.claimed_bytes)

    def _wish(self, now_s: float) -> MemoryWish:
        before, answer = self.claim.wish, self.answer
        if answer is None:  # the core is about to tell
            return MemoryWish(self.claim.claimed_bytes, number=before.number)
        since_s = (before.since_s or now_s) if answer.needed_bytes else 0.0
        return MemoryWish(answer.wanted_bytes, answer.needed_bytes, since_s, before.number)

    def _held_bytes(self) -> int:
        """Memory (bytes) that the core may use, or that its jobs still hold beyond that."""
        if self.told is None:
            return 0
        if self.answer is None or self.answer.number != self.number:
            return self.claim.claimed_bytes  # it may still go by what it was told before
        return max(self.told[0], self.answer.held_bytes)

    def _tell(self, left_bytes: int, others: int) -> MemoryLeft | None:
        if (left_bytes, others) == self.told:
            return None
        self.told, self.number = (left_bytes, others), self.number + 1
        return MemoryLeft(0.0, self.device, left_bytes, others, self.number)


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
