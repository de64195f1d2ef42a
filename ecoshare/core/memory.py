"""The safety condition of a lane: what may share a memory budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALLOWANCE_SHARE, ALLOWANCE_BYTES = 0.25, 256 << 20
"""Beyond its profile, whichever is more: another seed, a longer batch, a checkpoint in the making."""


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What a job needs of a device's memory.

    Attributes:
        persistent_bytes: P, kept while the job waits for its turn.
        ephemeral_bytes: T, needed beyond P inside an iteration.
    """

    persistent_bytes: int
    ephemeral_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """P + T: what the job may rise to while it holds the turn, and its cap."""
        return self.persistent_bytes + self.ephemeral_bytes


def cap_bytes(demand: MemoryDemand, budget_bytes: int) -> int:
    """The most that a job with a measured demand may rise to: more than was seen of one of its class, within the lane.

    It bounds one job; what keeps the lane is the turn.
    """
    return min(budget_bytes, demand.peak_bytes + max(ALLOWANCE_BYTES, int(ALLOWANCE_SHARE * demand.peak_bytes)))


def lane_fits(demands: Iterable[MemoryDemand], budget_bytes: int) -> bool:
    """Whether jobs that alternate in one lane stay within its budget: `sum(P_i) + max(T_i) <= C`.

    Only the holder of the turn is inside an iteration, so one ephemeral region serves them all. Source: Yu and
    Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys 2020, section 3.3.1.
    """
    persistent_bytes = ephemeral_bytes = 0
    for demand in demands:
        persistent_bytes += demand.persistent_bytes
        ephemeral_bytes = max(ephemeral_bytes, demand.ephemeral_bytes)
    return persistent_bytes + ephemeral_bytes <= budget_bytes
