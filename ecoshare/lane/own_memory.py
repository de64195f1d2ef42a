"""Private anonymous memory of the calling process, and advice to the kernel about it (madvise(2))."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw.p [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ 0 *(?:\[heap\]|\[anon:.*\])?$")

_LIBC = ctypes.CDLL(None)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def private_mappings() -> Iterator[tuple[int, int]]:
    """Begin and end of each private, anonymous, writable mapping of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if found := _MAPPING.match(line):
            yield int(found[1], 16), int(found[2], 16)


def advise(begin: int, count: int, advice: int) -> bool:
    """Advise the kernel about `count` bytes of memory from an address on. Return whether it has followed."""
    return bool(_LIBC.madvise(begin, count, advice) == 0)
