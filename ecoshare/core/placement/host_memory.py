"""Host memory: room for the memory of parked jobs, and the time that moving it takes.

::

    device   P P P │ largest T          sum(P resident) + max(T) <= C
    host     P P P P                    sum(P parked)            <= budget
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from ecoshare.core.records import Job
from ecoshare.core.states import JobState

TRANSFER_SHARE = 0.05
"""Largest part of a device's time for which memory moves to the host and back, whatever the number of its jobs."""

LEAST_STAY_S = 2.0
"""Shortest time (s) that a job keeps its place, however fast the transfer: after it, the first iterations run cold."""

BYTES_PER_S_AT_FIRST = 4 << 30
"""Assumed speed of a transfer until one was measured.

Reports of the driver's checkpoint calls give 4 and 7 GB/s on one machine, 1 and 2 GB/s on another: decision 33.
"""

ASKED_AGAIN_S = 60.0
"""Time (s) after which a job that could not be parked is asked again. The reason may have passed."""

_LEAST_BYTES = 64 << 20
"""Least memory of a job that shows the speed of a transfer. Below that, fixed costs outweigh it."""


class HostMemory:
    """Host memory that parked jobs may take, by node, and the measured speed of transfers, by device."""

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
        """Note that a job is about to be parked: its memory counts from now on."""
        node = job.lanes[0].device.node
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
