"""Result of a chain of allocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandOver:
    """Passage from one allocation to the next.

    Attributes:
        ahead_s: Time (s) from the submission of the successor to the limit of its predecessor.
        predicted_wait_s: Wait (s) that was predicted at the submission.
        wait_s: Wait (s) of the successor.
        interruption_s: Time (s) without an allocation.
        overlap_s: Time (s) with two allocations.
    """

    ahead_s: float
    predicted_wait_s: float
    wait_s: float
    interruption_s: float
    overlap_s: float


@dataclass(frozen=True, slots=True)
class ChainResult:
    """Chain from the start of its first allocation to the end of its work.

    Attributes:
        gpus: Number of GPUs of each allocation.
        work_s: Time (s) of the work.
        first_wait_s: Wait (s) of the first allocation, which no way of submitting successors changes.
        span_s: Time (s) from the first start to the end of the work.
        hand_overs: Passages in order; one fewer than there were allocations.
        idle_w: Power (W) of a GPU that waits with an allocation. The joules are modelled with it.
    """

    gpus: int
    work_s: float
    first_wait_s: float
    span_s: float
    hand_overs: tuple[HandOver, ...]
    idle_w: float

    @property
    def interruption_s(self) -> float:
        """Time (s) without an allocation between the first start and the end."""
        return sum(each.interruption_s for each in self.hand_overs)

    @property
    def overlap_s(self) -> float:
        """Time (s) with two allocations."""
        return sum(each.overlap_s for each in self.hand_overs)

    @property
    def overlap_share(self) -> float:
        """Time with two allocations / time from the first start to the end."""
        return self.overlap_s / self.span_s

    @property
    def overlap_j(self) -> float:
        """Joules, modelled: the GPUs of one of the two allocations idle during an overlap."""
        return self.overlap_s * self.gpus * self.idle_w

    @property
    def is_interrupted(self) -> bool:
        """Whether there was a second or more without an allocation."""
        return self.interruption_s >= 1.0


@dataclass(frozen=True, slots=True)
class ChainTotals:
    """Sums over chains.

    Attributes:
        chains: Number of chains.
        hand_overs: Number of hand-overs.
        interruption_s: Time (s) without an allocation.
        overlap_share: Time with two allocations / time of all chains.
        overlap_j: Joules of overlap, modelled.
        uninterrupted_share: Share of chains without an interruption.
    """

    chains: int
    hand_overs: int
    interruption_s: float
    overlap_share: float
    overlap_j: float
    uninterrupted_share: float

    @classmethod
    def of(cls, results: Sequence[ChainResult]) -> ChainTotals:
        """Sums over `results`, at least one."""
        return cls(
            len(results),
            sum(len(each.hand_overs) for each in results),
            sum(each.interruption_s for each in results),
            sum(each.overlap_s for each in results) / sum(each.span_s for each in results),
            sum(each.overlap_j for each in results),
            sum(not each.is_interrupted for each in results) / len(results),
        )
