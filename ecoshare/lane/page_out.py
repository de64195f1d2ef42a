"""Moves the memory of the calling process to swap, for a job on processors that waits.

The kernel keeps the content, and brings each page back at its next use.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from ecoshare.common.machine_memory import free_swap_bytes
from ecoshare.lane.own_memory import advise, private_mappings

_PAGEOUT = 21  # MADV_PAGEOUT of <linux/mman.h>, from Linux 5.4 on


def page_out() -> int:
    """Move the private anonymous memory of this process to swap, as far as there is room.

    Pages that another process shares, as a fork does, stay. Other threads may run meanwhile.

    Returns:
        Memory (bytes) by which this process became smaller; 0 without swap, or if the kernel refuses.
    """
    if not free_swap_bytes():
        return 0
    before_bytes = _resident_bytes()
    for begin, end in private_mappings():
        # Refused for pages that are locked, and for a mapping that another thread has just removed.
        advise(begin, end - begin, _PAGEOUT)
    return max(0, before_bytes - _resident_bytes())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
