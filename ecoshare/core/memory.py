"""Safety condition: which jobs may share the memory of a device, and how much each of them is promised.

::

    caches are emptied   P1 P2 P3 │ largest T │            one ephemeral region for each lane
    caches are kept      P1 T1 │ P2 T2 │ P3 T3 │           each allocator keeps what it once reserved
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.records import Job, JobState

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


TRANSFER_SHARE = 0.05
"""Largest part of a device's time for which memory moves to the host and back, whatever the number of its jobs."""

LEAST_STAY_S = 2.0
"""Shortest time (s) that a job keeps its place, however fast the transfer: after it, the first iterations run cold."""

BYTES_PER_S_AT_FIRST = 4 << 30
"""Assumed speed of a transfer until one was measured.

Reports of the driver's checkpoint calls give 4 and 7 GB/s on one machine, 1 and 2 GB/s on another: docs/decisions/0033.
"""

ASKED_AGAIN_S = 60.0
"""Time (s) after which a job that could not be parked is asked again. The reason may have passed."""

_LEAST_BYTES = 64 << 20
"""Least memory of a job that shows the speed of a transfer. Below that, fixed costs outweigh it."""


class HostMemory:
    """Host memory that parked jobs may take, by node, and the measured speed of transfers, by device.

    ::

        device   P P P │ largest T          sum(P resident) + max(T) <= C
        host     P P P P                    sum(P parked)            <= budget
    """

    def __init__(self, budget_bytes: int) -> None:
        """Memory without parked jobs.

        Args:
            budget_bytes: Host memory of each node for parked jobs; 0 if no job is parked.
        """
        self._budget_bytes = budget_bytes
        self._taken: dict[Job, tuple[str, int]] = {}
        self._by_node: Counter[str] = Counter()
        self._moved_bytes: Counter[str] = Counter()
        self._moved_s: defaultdict[str, float] = defaultdict(float)
        self._refusals: dict[Job, tuple[int, float]] = {}  # number of refusals, and time of the next question

    def may_park(self, job: Job, beside_bytes: int = 0) -> bool:
        """Whether a running job can be parked, and its node has room for its memory.

        A job keeps its place if it uses several devices, is a service or a trial of a sweep, shares its process, if its
        child processes use the device, or if it has done no iteration.

        Args:
            job: The job.
            beside_bytes: Memory (bytes) of further jobs that will be parked there.
        """
        if job.spec.gpus > 1 or job.spec.sweep or job.spec.fused or job.usage.keeps_lane or not job.usage.done:
            return False
        if job.state is not JobState.RUNNING or job.spec.service is not None:
            return False
        node = job.lanes[0].device.node
        return self._by_node[node] + beside_bytes + size_bytes(job) <= self._budget_bytes

    def reserve(self, job: Job) -> None:
        """Note that a job is about to be parked, or is parked since before: its memory counts from now on."""
        node = (job.parked_in or job.lanes[0]).device.node
        self._taken[job] = node, size_bytes(job)
        self._by_node[node] += size_bytes(job)

    def release(self, job: Job) -> None:
        """Note that a job has its memory on its device, or has ended. Other jobs are ignored."""
        if (taken := self._taken.pop(job, None)) is not None:
            self._by_node[taken[0]] -= taken[1]

    def refuses(self, job: Job, at_s: float) -> None:
        """Note that a job could not be parked. It is asked again in a minute, then after two, four, and so on."""
        self.release(job)
        count, _ = self._refusals.get(job, (0, 0.0))
        self._refusals[job] = count + 1, at_s + ASKED_AGAIN_S * 2**count

    def asked_again_s(self, job: Job) -> float:
        """Time (s) from which a job that could not be parked may be asked again; minus infinity for any time."""
        return self._refusals[job][1] if job in self._refusals else -math.inf

    def ended(self, job: Job) -> None:
        """Note the end of an attempt."""
        self.release(job)
        self._refusals.pop(job, None)

    def moved(self, job: Job, device: str, took_s: float) -> None:
        """Note the time of a transfer, one way."""
        if size_bytes(job) >= _LEAST_BYTES:
            self._moved_bytes[device] += size_bytes(job)
            self._moved_s[device] += took_s

    def transfer_s(self, job: Job, device: str) -> float:
        """Expected time (s) of one transfer of a job's memory."""
        moved_bytes = self._moved_bytes[device]
        if not moved_bytes:
            return size_bytes(job) / BYTES_PER_S_AT_FIRST
        return size_bytes(job) * self._moved_s[device] / moved_bytes

    def least_stay_s(self, job: Job, jobs: int) -> float:
        """Time (s) for which a job keeps its place.

        Both transfers of its memory then take less than `TRANSFER_SHARE` of its turns in that time.

        Args:
            job: Running job.
            jobs: Number of jobs on its device, which share that time.
        """
        return max(LEAST_STAY_S, 2.0 * jobs * self.transfer_s(job, job.lanes[0].device.name) / TRANSFER_SHARE)


def size_bytes(job: Job) -> int:
    """Memory (bytes) of a parked job: its P, because its cache is emptied before."""
    return job.demand.persistent_bytes
