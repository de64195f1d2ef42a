"""Share of a run in the memory of one GPU that other runs of the machine use, too (`slices.shared_between`).

It is apart from the slices, which need no events: a command that looks for other runs loads no core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ecoshare.core.commands import ShareMemory
from ecoshare.core.events import MemoryLeft
from ecoshare.core.slices import MemoryWish, shared_between


class Claimant(Protocol):
    """Another run that uses a device."""

    @property
    def wish(self) -> MemoryWish:
        """Memory that it would use."""
        ...


class RunClaim(Protocol):
    """Claim of a run to the memory of a device; the claims of all runs never exceed that together.

    Attributes:
        memory_bytes: Memory of the device for all runs.
        claimed_bytes: Memory that this run has claimed.
        wish: Memory that it would use, as the others know it.
    """

    memory_bytes: int
    claimed_bytes: int
    wish: MemoryWish

    def others(self) -> Sequence[Claimant]:
        """Other runs that use the device now."""
        ...

    def tell(self, claimed_bytes: int, wish: MemoryWish) -> None:
        """Claim so much memory from now on, or less if other runs claim the rest."""
        ...


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
    claim: RunClaim
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

    def _part_bytes(self, others: Sequence[Claimant], now_s: float) -> int:
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
