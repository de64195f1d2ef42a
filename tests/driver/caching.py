"""Torch's caching allocator without the memory: segments from the device, blocks inside them, and a cache.

::

    device    │ 2 MiB │ 20 MiB        │ 64 MiB                │      segments: reserved until all of one is free
    segment   │ used │ free │ used │ free        │                  blocks: freed ones merge, and are used again

A request takes the smallest free block that holds it. A free block between two used ones can serve small requests only,
and its segment cannot be released: fragmentation. Sizes are those of torch 2.13, c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BLOCK_BYTES, SEGMENT_BYTES = 512, 2 << 20
"""Units (bytes) of the memory that the allocator hands out, and of the memory that it requests from the device."""

SMALL_BYTES, MIDDLE_BYTES, LARGE_BYTES = 1 << 20, 10 << 20, 20 << 20
"""Largest request (bytes) for a segment of `SEGMENT_BYTES`, first that has a segment of its own, and the segment size
(bytes) in between."""


@dataclass(slots=True)
class Level:
    """Size with its peak since the last reset."""

    current: int = 0
    peak: int = 0

    def set(self, size_bytes: int) -> None:
        """Set the present size."""
        self.current = size_bytes
        self.peak = max(self.peak, size_bytes)


@dataclass(slots=True, eq=False)
class Block:
    """Part of a segment."""

    size_bytes: int
    used: bool = False


@dataclass(slots=True, eq=False)
class Segment:
    """Memory that was requested from the device in one call.

    Attributes:
        blocks: Blocks in the order of their addresses.
    """

    size_bytes: int
    is_small: bool
    blocks: list[Block]

    @property
    def is_free(self) -> bool:
        """Whether no block is used."""
        return len(self.blocks) == 1 and not self.blocks[0].used

    def take(self, block: Block, size_bytes: int) -> Block:
        """Use a free block, and split off what is left of it if that is worth it."""
        rest_bytes = block.size_bytes - size_bytes
        if rest_bytes >= BLOCK_BYTES if self.is_small else rest_bytes > SMALL_BYTES:
            block.size_bytes = size_bytes
            self.blocks.insert(self.blocks.index(block) + 1, Block(rest_bytes))
        block.used = True
        return block

    def release(self, block: Block) -> None:
        """Free a block, and merge it with free neighbours."""
        block.used = False
        merged: list[Block] = []
        for each in self.blocks:
            if merged and not each.used and not merged[-1].used:
                merged[-1].size_bytes += each.size_bytes
            else:
                merged.append(each)
        self.blocks = merged


@dataclass(slots=True)
class CachingAllocator:
    """Caching allocator of one process on one device.

    Attributes:
        resize: Called with the bytes that shall be reserved; returns whether the device has them.
        out_of_memory: Makes the error for a request that cannot be met.
        cap_bytes: Largest size that may be reserved.
        history: Allocations and releases in torch's form; None if they are not recorded.
    """

    resize: Callable[[int], bool]
    out_of_memory: Callable[[str], Exception]
    cap_bytes: int
    allocated: Level = field(default_factory=Level)
    reserved: Level = field(default_factory=Level)
    history: list[dict[str, Any]] | None = None
    _segments: list[Segment] = field(default_factory=list)
    _used: dict[int, list[tuple[Segment, Block]]] = field(default_factory=lambda: defaultdict(list))

    def allocate(self, size_bytes: int) -> None:
        """Allocate memory."""
        wanted = rounded(size_bytes, BLOCK_BYTES)
        segment, block = self._find(wanted) or self._grow(wanted)
        segment.take(block, wanted)
        self._used[size_bytes].append((segment, block))
        self.allocated.set(self.allocated.current + block.size_bytes)
        self._remember("alloc", size_bytes)

    def free(self, size_bytes: int) -> None:
        """Free the last allocation of this size."""
        segment, block = self._used[size_bytes].pop()
        self.allocated.set(self.allocated.current - block.size_bytes)
        segment.release(block)
        self._remember("free_requested", size_bytes)

    def empty_cache(self) -> None:
        """Release segments without a used block to the device."""
        kept = [segment for segment in self._segments if not segment.is_free]
        if len(kept) < len(self._segments):
            self._segments = kept
            reserved_bytes = sum(segment.size_bytes for segment in kept)
            assert self.resize(reserved_bytes), "less is always to be had"
            self.reserved.set(reserved_bytes)

    def reset_peaks(self) -> None:
        """Reset the peaks to the present sizes."""
        for level in (self.allocated, self.reserved):
            level.peak = level.current

    @property
    def kept_bytes(self) -> int:
        """Size of the segments with a used block, which no emptied cache gives back."""
        return sum(segment.size_bytes for segment in self._segments if not segment.is_free)

    def statistics(self) -> dict[str, int]:
        """Sizes among torch's statistics, by their names."""
        levels = {"allocated_bytes": self.allocated, "reserved_bytes": self.reserved}
        sizes = {
            f"{name}.all.{what}": getattr(level, what) for name, level in levels.items() for what in ("current", "peak")
        }
        return {**sizes, "inactive_split_bytes.all.current": self.kept_bytes - self.allocated.current}

    def _find(self, wanted_bytes: int) -> tuple[Segment, Block] | None:
        """Smallest free block that is large enough, in a segment for requests of this size."""
        fitting = [
            (segment, block)
            for segment in self._segments
            if segment.is_small == (wanted_bytes <= SMALL_BYTES)
            for block in segment.blocks
            if not block.used and block.size_bytes >= wanted_bytes
        ]
        return min(fitting, key=lambda each: each[1].size_bytes, default=None)

    def _grow(self, wanted_bytes: int) -> tuple[Segment, Block]:
        """Request another segment. If it is not to be had, release the cache and ask again."""
        is_small = wanted_bytes <= SMALL_BYTES
        size_bytes = SEGMENT_BYTES if is_small else LARGE_BYTES
        if wanted_bytes >= MIDDLE_BYTES:
            size_bytes = rounded(wanted_bytes, SEGMENT_BYTES)
        for attempt in range(2):
            larger_bytes = self.reserved.current + size_bytes
            if larger_bytes <= self.cap_bytes and self.resize(larger_bytes):
                break
            if attempt:
                raise self.out_of_memory(f"{larger_bytes} bytes; {self.cap_bytes} are allowed, or the device has less")
            self.empty_cache()
        self.reserved.set(larger_bytes)
        segment = Segment(size_bytes, is_small, [Block(size_bytes)])
        self._segments.append(segment)
        return segment, segment.blocks[0]

    def _remember(self, action: str, size_bytes: int) -> None:
        if self.history is not None:
            self.history.append({"action": action, "size": size_bytes, "time_us": int(time.time() * 1e6)})


def rounded(size_bytes: int, unit_bytes: int) -> int:
    """Size rounded up to a multiple of the unit."""
    return -(-size_bytes // unit_bytes) * unit_bytes
