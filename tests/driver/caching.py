"""Byte counts of torch's caching allocator: freed memory stays reserved until the cache is emptied.

The allocator has no addresses and so no fragments: all free memory can be used again, or released.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BLOCK_BYTES, SEGMENT_BYTES = 512, 2 << 20
"""Units (bytes) of the memory that the allocator hands out, and of the memory that it requests from the device."""


@dataclass(slots=True)
class Level:
    """Size with its peak since the last reset."""

    current: int = 0
    peak: int = 0

    def set(self, size_bytes: int) -> None:
        """Set the present size."""
        self.current = size_bytes
        self.peak = max(self.peak, size_bytes)


@dataclass(slots=True)
class CachingAllocator:
    """Caching allocator of one process on one device.

    Attributes:
        reserves: Called with the reserved bytes whenever they have changed.
        out_of_memory: Makes the error for a request above the cap.
        cap_bytes: Largest size that may be reserved.
        history: Allocations and releases in torch's form; None if they are not recorded.
    """

    reserves: Callable[[int], None]
    out_of_memory: Callable[[str], Exception]
    cap_bytes: int
    allocated: Level = field(default_factory=Level)
    reserved: Level = field(default_factory=Level)
    history: list[dict[str, Any]] | None = None

    def allocate(self, size_bytes: int) -> None:
        """Allocate memory."""
        needed_bytes = self.allocated.current + rounded(size_bytes, BLOCK_BYTES)
        if needed_bytes > self.reserved.current:
            if rounded(needed_bytes, SEGMENT_BYTES) > self.cap_bytes:
                raise self.out_of_memory(f"{needed_bytes} bytes are more than the {self.cap_bytes} allowed")
            self._reserve(needed_bytes)
        self.allocated.set(needed_bytes)
        self._remember("alloc", size_bytes)

    def free(self, size_bytes: int) -> None:
        """Free an allocation of this size."""
        self.allocated.set(self.allocated.current - rounded(size_bytes, BLOCK_BYTES))
        assert self.allocated.current >= 0, "more is freed than was allocated"
        self._remember("free_requested", size_bytes)

    def empty_cache(self) -> None:
        """Release unused memory to the device."""
        self._reserve(self.allocated.current)

    def reset_peaks(self) -> None:
        """Reset the peaks to the present sizes."""
        for level in (self.allocated, self.reserved):
            level.peak = level.current

    def statistics(self) -> dict[str, int]:
        """Sizes among torch's statistics, by their names."""
        levels = {"allocated_bytes": self.allocated, "reserved_bytes": self.reserved}
        return {
            f"{name}.all.{what}": getattr(level, what) for name, level in levels.items() for what in ("current", "peak")
        }

    def _reserve(self, size_bytes: int) -> None:
        self.reserved.set(rounded(size_bytes, SEGMENT_BYTES))
        self.reserves(self.reserved.current)

    def _remember(self, action: str, size_bytes: int) -> None:
        if self.history is not None:
            self.history.append({"action": action, "size": size_bytes, "time_us": int(time.time() * 1e6)})


def rounded(size_bytes: int, unit_bytes: int) -> int:
    """Size rounded up to a multiple of the unit."""
    return -(-size_bytes // unit_bytes) * unit_bytes
