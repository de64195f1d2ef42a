"""How much memory each job of a shared process has, by what the process grows during its turns.

One job runs at a time, so what the process has more at the end of a turn than at its beginning is that job's. What one
frees, another may use before the process gives it back, so the figures are no better than some ten megabytes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_GIB = 1 << 30
_WORTH_TRIMMING_BYTES = 32 << 20
_MOST_LEFT_SHARE, _MOST_LEFT_BYTES = 0.25, 256 << 20
"""Left behind by jobs that are over, of what the process began with, whichever is more: then it takes no more jobs."""


_MOST_HANDLES, _HANDLES_OF_A_JOB = 64, 16


class Growth:
    """The process's memory: its resident set; from the first use of CUDA on, what tensors there have."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._on_device = False
        self._common_bytes = self._now_bytes = self._bytes()
        self._jobs: dict[object, _Job] = {}
        self._left_bytes = 0
        self._ended = 0
        self._handles = _handles()

    def enter(self, job: object) -> None:
        """A job comes, which has nothing yet."""
        self._jobs[job] = _Job()

    def look(self, job: object) -> None:
        """The job that runs has, beside what it had, what the process has grown since the last look."""
        if not self._on_device and _uses_device():
            self._on_device = True
            self._common_bytes = self._left_bytes = self._now_bytes = 0
            for each in self._jobs.values():
                each.has_bytes = each.peak_bytes = 0
        here, now_bytes = self._jobs[job], self._bytes()
        here.has_bytes += now_bytes - self._now_bytes
        here.peak_bytes = max(here.peak_bytes, here.has_bytes)
        self._now_bytes = now_bytes

    def too_large(self, job: object, cap_bytes: int, lane_bytes: int) -> str:
        """Why the job whose turn it is may not stay in the process; empty where it may.

        Args:
            cap_bytes: Most that a job like this should have, with what all have in common.
            lane_bytes: Most that the process should have; where it has more, the largest job must go.
        """
        self.look(job)
        here = self._jobs[job]
        if self._common_bytes + here.has_bytes > cap_bytes:
            has, cap = (self._common_bytes + here.has_bytes) / _GIB, cap_bytes / _GIB
            return f"it has grown past its profile: {has:.2f} GiB of memory, more than its cap of {cap:.2f} GiB"
        if self._now_bytes > lane_bytes and here is max([*self._jobs.values()], key=lambda each: each.has_bytes):
            total, lane = self._now_bytes / _GIB, lane_bytes / _GIB
            return f"it is the largest of a lane that has {total:.2f} GiB of memory and may have {lane:.2f} GiB"
        return ""

    def peak_bytes(self, job: object) -> int:
        """Most that a job had, with what all have in common."""
        return self._common_bytes + self._jobs[job].peak_bytes

    def settle(self, job: object) -> None:
        """A job is over, and has its turn for the last time: let the process give back what it has freed."""
        self.look(job)
        if self._jobs[job].has_bytes > _WORTH_TRIMMING_BYTES:
            if self._on_device:
                sys.modules["torch"].cuda.empty_cache()
            ctypes.CDLL(None).malloc_trim(0)
            self.look(job)

    def leave(self, job: object) -> bool:
        """A job has gone; whether so much is left behind, of memory or of open files, that no other should come."""
        left_bytes = self._jobs.pop(job).has_bytes
        if not self._ended:  # the first one has loaded what all will use
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
    """Of one job: what it has, and the most that it had."""

    __slots__ = ("has_bytes", "peak_bytes")

    def __init__(self) -> None:
        self.has_bytes = self.peak_bytes = 0
