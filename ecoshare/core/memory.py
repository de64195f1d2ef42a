"""Safety condition of a lane: which jobs may share a memory budget."""

from __future__ import annotations

from collections.abc import Iterable

from ecoshare.values.class_profile import MemoryDemand

ALLOWANCE_SHARE, ALLOWANCE_BYTES = 0.25, 256 << 20
"""Allowance above the profile of a job; the larger of the two counts.

It covers another seed, a longer batch and the writing of a checkpoint.
"""


def cap_bytes(demand: MemoryDemand, budget_bytes: int) -> int:
    """Memory limit of a job with a measured demand: the demand plus an allowance, within the budget of the lane.

    The limit bounds a single job. The turn keeps all jobs of a lane together within the budget.
    """
    return min(budget_bytes, demand.peak_bytes + max(ALLOWANCE_BYTES, int(ALLOWANCE_SHARE * demand.peak_bytes)))


def lane_fits(demands: Iterable[MemoryDemand], budget_bytes: int) -> bool:
    """Whether jobs that alternate in one lane stay within its budget C: `sum(P_i) + max(T_i) <= C`.

    Only the holder of the turn is inside an iteration, so one ephemeral region serves all jobs. Source: Yu and
    Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys 2020, section 3.3.1.
    """
    persistent_bytes = ephemeral_bytes = 0
    for demand in demands:
        persistent_bytes += demand.persistent_bytes
        ephemeral_bytes = max(ephemeral_bytes, demand.ephemeral_bytes)
    return persistent_bytes + ephemeral_bytes <= budget_bytes
