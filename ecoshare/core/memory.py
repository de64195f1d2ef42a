"""Safety condition: which jobs may share the memory of a device, and how much each of them is promised.

::

    caches are emptied   P1 P2 P3 │ largest T │            one ephemeral region for each lane
    caches are kept      P1 T1 │ P2 T2 │ P3 T3 │           each allocator keeps what it once reserved
"""

from __future__ import annotations

from collections.abc import Iterable

from ecoshare.values.class_profile import MemoryDemand

ALLOWANCE_SHARE, LEAST_ALLOWANCE_BYTES, MOST_ALLOWANCE_BYTES = 0.25, 256 << 20, 2 << 30
"""Allowance above the profile of a job: this share of its peak, within the two limits.

It covers another seed, a longer batch and the writing of a checkpoint.
"""


def promised(measured: MemoryDemand, most_bytes: int) -> MemoryDemand:
    """Memory that a job with a measured demand is promised: the demand plus an allowance, at most `most_bytes`.

    The allowance is part of T, so all jobs of a lane share one. The job's allocator is limited to the sum, and the
    safety condition counts the sum: a job within its limit never takes what another job was promised.
    """
    allowance = int(ALLOWANCE_SHARE * measured.peak_bytes)
    allowance = min(MOST_ALLOWANCE_BYTES, max(LEAST_ALLOWANCE_BYTES, allowance))
    peak_bytes = min(most_bytes, measured.peak_bytes + allowance)
    persistent_bytes = min(measured.persistent_bytes, peak_bytes)
    return MemoryDemand(persistent_bytes, peak_bytes - persistent_bytes)


def lane_bytes(demands: Iterable[MemoryDemand]) -> int:
    """Memory of jobs that alternate in one lane, if each empties its cache at a hand-over: `sum(P_i) + max(T_i)`.

    Only the holder of the turn is inside an iteration, so one ephemeral region serves all jobs. Source: Yu and
    Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys 2020, section 3.3.1.
    """
    persistent_bytes = ephemeral_bytes = 0
    for demand in demands:
        persistent_bytes += demand.persistent_bytes
        ephemeral_bytes = max(ephemeral_bytes, demand.ephemeral_bytes)
    return persistent_bytes + ephemeral_bytes


def cached_bytes(demands: Iterable[MemoryDemand]) -> int:
    """Memory of jobs that keep their caches while they wait: `sum(P_i + T_i)`."""
    return sum(demand.peak_bytes for demand in demands)
