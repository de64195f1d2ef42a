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

LOST_SHARE = 1 / 16
"""Memory that an allocator loses between the blocks of its segments / memory of tensors at their peak."""

KEPT_ALLOWANCE_BYTES = 32 << 20
"""Memory above P that a job may keep while it waits, without a larger promise. A run leaves part of the memory of a
device free, which covers it for all jobs.
"""


def promised(measured: MemoryDemand, most_bytes: int) -> MemoryDemand:
    """Memory that a job with a measured demand is promised: the demand plus an allowance, at most `most_bytes`.

    The allowance is part of T, so all jobs of a lane share one. The safety condition counts the sum. It is a promise to
    the job and its neighbours, and no reason to end the job: the promise grows with the job while memory is free.
    """
    allowance = int(ALLOWANCE_SHARE * measured.peak_bytes)
    allowance = min(MOST_ALLOWANCE_BYTES, max(LEAST_ALLOWANCE_BYTES, allowance))
    peak_bytes = min(most_bytes, measured.peak_bytes + allowance)
    persistent_bytes = min(measured.persistent_bytes, peak_bytes)
    return MemoryDemand(persistent_bytes, peak_bytes - persistent_bytes)


def grown(measured: MemoryDemand, most_bytes: int, peak_bytes: int, kept_bytes: int) -> MemoryDemand | None:
    """Demand of a class of which a job took more than was measured; None if that is within the allowance.

    Half of the allowance is left when the demand grows, so that there is room ahead. The allowance is one for all jobs
    of a lane, so it does not cover what a job keeps while it waits.

    Args:
        measured: Demand of the class.
        most_bytes: Memory (bytes) that the job is promised now.
        peak_bytes: Largest memory (bytes) that the job took.
        kept_bytes: Memory (bytes) that the job keeps while it waits; 0 if unknown. Then all that it took beyond its
            demand counts as kept.
    """
    is_larger = peak_bytes > most_bytes or outgrows(measured, peak_bytes)
    if not is_larger and kept_bytes <= measured.persistent_bytes + KEPT_ALLOWANCE_BYTES:
        return None
    if not kept_bytes:
        return with_peak(measured, peak_bytes)
    persistent_bytes = max(measured.persistent_bytes, kept_bytes)
    return MemoryDemand(persistent_bytes, max(measured.ephemeral_bytes, peak_bytes - persistent_bytes))


def outgrows(measured: MemoryDemand, peak_bytes: int) -> bool:
    """Whether a job has taken half of the allowance above the measured demand of its class."""
    allowance = promised(measured, 1 << 62).peak_bytes - measured.peak_bytes
    return peak_bytes > measured.peak_bytes + allowance // 2


def with_peak(measured: MemoryDemand, peak_bytes: int) -> MemoryDemand:
    """Demand of a class of which a job took so much: what exceeds the measured demand counts as kept."""
    return MemoryDemand(max(measured.persistent_bytes, peak_bytes - measured.ephemeral_bytes), measured.ephemeral_bytes)


def bare(measured: MemoryDemand) -> MemoryDemand:
    """Least that a job of this demand can do with: no allowance but that for memory lost between blocks."""
    return MemoryDemand(measured.persistent_bytes, measured.ephemeral_bytes + int(measured.peak_bytes * LOST_SHARE))


def cut(demand: MemoryDemand, most_bytes: int) -> MemoryDemand:
    """Demand with at most this peak (bytes): T is cut first."""
    ephemeral_bytes = max(0, demand.ephemeral_bytes - max(0, demand.peak_bytes - most_bytes))
    return MemoryDemand(min(demand.persistent_bytes, most_bytes - ephemeral_bytes), ephemeral_bytes)


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
