"""Memory of each job in a shared process, measured as the growth of the process during the job's turns.

One job runs at a time, so the growth of the process during a turn belongs to that turn's job. Another job may use
memory that the first has freed before the process gives it back. So the figures are accurate to some ten megabytes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ecoshare.lane.device_sync import empty_cache

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_GIB = 1 << 30
_WORTH_TRIMMING_BYTES = 32 << 20
_MOST_LEFT_SHARE, _MOST_LEFT_BYTES = 0.25, 256 << 20
"""Limit of the memory that finished jobs leave behind: a share of the memory that all jobs have in common, or bytes,
whichever is more. Above it the process takes no more jobs."""


_MOST_HANDLES, _HANDLES_OF_A_JOB = 64, 16


class Growth:
    """Memory of the process: its resident set; from the first use of CUDA on, the memory of tensors there."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._on_device = False
        self._common_bytes = self._now_bytes = self._bytes()
        self._jobs: dict[object, _Job] = {}
        self._left_bytes = 0
        self._ended = 0
        self._handles = _handles()

    def enter(self, job: object) -> None:
        """Add a job, which has no memory yet."""
        self._jobs[job] = _Job()

    def look(self, job: object) -> None:
        """Add the growth of the process since the last look to the job that runs."""
        if not self._on_device and _uses_device():
            self._on_device = True
            self._common_bytes = self._left_bytes = self._now_bytes = 0
            for each in self._jobs.values():
                each.has_bytes = each.peak_bytes = 0
        here, now_bytes = self._jobs[job], self._bytes()
        here.has_bytes += now_bytes - self._now_bytes
        here.peak_bytes = max(here.peak_bytes, here.has_bytes)
        self._now_bytes = now_bytes

    def too_large(self, job: object, process_bytes: int) -> str:
        """Reason why the job with the turn may not stay in the process; empty if it may.

        Args:
            job: The job with the turn.
            process_bytes: Most memory of the process. Above it the largest job must go.
        """
        self.look(job)
        here = self._jobs[job]
        if self._now_bytes > process_bytes and here is max([*self._jobs.values()], key=lambda each: each.has_bytes):
            total, most = self._now_bytes / _GIB, process_bytes / _GIB
            return f"it is the largest of a process that has {total:.2f} GiB of memory and may have {most:.2f} GiB"
        return ""

    def on_device_bytes(self, job: object) -> tuple[int, int]:
        """Peak and present device memory (bytes) of a job, with what all jobs have in common; 0 on processors."""
        if not self._on_device:
            return 0, 0
        return self.peak_bytes(job), self._common_bytes + self._jobs[job].has_bytes

    def peak_bytes(self, job: object) -> int:
        """Peak memory (bytes) of a job, with the memory that all jobs have in common."""
        return self._common_bytes + self._jobs[job].peak_bytes

    def settle(self, job: object) -> None:
        """Let the process give back freed memory. The job is over and has its last turn."""
        self.look(job)
        if self._on_device:  # the slot of the job is about to be free, and with it the memory of its cache
            empty_cache("cuda")
        if self._jobs[job].has_bytes > _WORTH_TRIMMING_BYTES:
            empty_cache("cpu")
        self.look(job)

    def leave(self, job: object) -> bool:
        """Remove a finished job. Return whether it left too much memory or too many open files for another to come."""
        left_bytes = self._jobs.pop(job).has_bytes
        if not self._ended:  # the first job has loaded what all jobs use
            self._common_bytes += max(0, left_bytes)
        else:
            self._left_bytes += left_bytes
        self._ended += 1
        if _handles() - self._handles > _MOST_HANDLES + _HANDLES_OF_A_JOB * len(self._jobs):
            return True
        return self._left_bytes > max(_MOST_LEFT_BYTES, int(_MOST_LEFT_SHARE * self._common_bytes))

    def _bytes(self) -> int:
        if self._on_device:
            return int(sys.modules["torch"].cuda.memory_allocated())
        return int(os.pread(self._statm, 100, 0).split()[1]) * _PAGE_BYTES


def _handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _uses_device() -> bool:
    return bool(sys.modules["torch"].cuda.is_initialized())


class _Job:
    """Present and peak memory of one job."""

    __slots__ = ("has_bytes", "peak_bytes")

    def __init__(self) -> None:
        self.has_bytes = self.peak_bytes = 0
