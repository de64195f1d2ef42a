"""Present memory of the processes of jobs, at low cost.

On the CPU, the true figure is the proportional set size. For a process that has loaded torch, the kernel needs 3 ms
(measured) to compute it, and locks the memory map of the process meanwhile. The resident size takes 15 us and changes
together with it. So a change of the resident size shows when to read the proportional size again. It is first read when
an attempt is seen for the second time, a second after the first: most short jobs have ended by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ecoshare.lane import processes

_CHANGE = 0.05
"""Relative change of the resident size above which the proportional size is read again."""


@dataclass(slots=True)
class Footprints:
    """Memory of attempts, by attempt key. Call `forget` for each attempt that has ended."""

    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _peaks: dict[str, int] = field(default_factory=dict)

    def bytes(self, key: str, pids: list[int], on_device: Mapping[int, int] | None, sharing: int = 1) -> int | None:
        """Present memory (bytes) of an attempt; None if it is unknown.

        Args:
            key: Key of the attempt.
            pids: Processes of the attempt.
            on_device: Memory (bytes) of each process on the GPU; None if the jobs run on the processors.
            sharing: Number of attempts that share these processes. Each attempt counts an equal part.
        """
        if on_device is not None:
            # In some containers the driver names the right process with 0 bytes; a context takes more.
            known = [size_bytes for pid in pids if (size_bytes := on_device.get(pid))]
            return sum(known) // sharing if known else None
        resident = processes.resident_bytes(pids)
        before = self._seen.get(key)
        if before is None:
            before = self._seen[key] = 0, 0
        elif abs(resident - before[0]) > _CHANGE * before[0]:
            before = self._seen[key] = resident, processes.proportional_bytes(pids)
        return before[1] // sharing or None

    def peak_bytes(self, key: str, pids: list[int]) -> int:
        """Largest memory (bytes) of an attempt on the processors in all calls so far, including this one."""
        self._peaks[key] = max(self._peaks.get(key, 0), self.bytes(key, pids, None) or 0)
        return self._peaks[key]

    def largest_seen_bytes(self, key: str) -> int:
        """Result of the last `peak_bytes`; 0 without one."""
        return self._peaks.get(key, 0)

    def forget(self, key: str) -> None:
        """Remove an attempt that has ended."""
        self._seen.pop(key, None)
        self._peaks.pop(key, None)
