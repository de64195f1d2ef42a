"""How much memory the jobs' processes have now, asked for cheaply.

On the CPU the honest figure is the proportional set size, which takes the kernel 3 ms of a process that has loaded
torch (tried), with its memory map locked. The resident size takes 15 us and changes with it: it says when to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ecoshare.lane import processes

_CHANGE = 0.05
"""Of the resident size, from which on the proportional one is read again."""


@dataclass(slots=True)
class Footprints:
    """Memory of attempts, by key; `forget` those that have ended."""

    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _peaks: dict[str, int] = field(default_factory=dict)

    def bytes(self, key: str, pids: list[int], on_device: Mapping[int, int] | None, sharing: int = 1) -> int | None:
        """Memory of an attempt now; None where nobody tells.

        Args:
            pids: Its processes.
            on_device: Of its GPU, by process; None where the jobs run on the processors.
            sharing: How many attempts have these processes, to equal parts as far as anybody can tell.
        """
        if on_device is not None:
            known = [on_device[pid] for pid in pids if pid in on_device]
            return sum(known) // sharing if known else None
        resident = processes.resident_bytes(pids)
        before = self._seen.get(key)
        if before is None or abs(resident - before[0]) > _CHANGE * before[0]:
            self._seen[key] = before = resident, processes.proportional_bytes(pids)
        return before[1] // sharing or None

    def peak_bytes(self, key: str, pids: list[int]) -> int:
        """Largest memory that was seen of an attempt on the processors, now included."""
        self._peaks[key] = max(self._peaks.get(key, 0), self.bytes(key, pids, None) or 0)
        return self._peaks[key]

    def forget(self, key: str) -> None:
        """The attempt has ended."""
        self._seen.pop(key, None)
        self._peaks.pop(key, None)
