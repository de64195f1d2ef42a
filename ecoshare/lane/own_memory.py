"""Mappings of a process, and advice to the kernel about the private memory of this one (madvise(2))."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ \d+ *(.*)")

_LIBC = ctypes.CDLL(None)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class MappedRange(NamedTuple):
    """Mapping of a process.

    Attributes:
        begin: First address.
        end: Address after the last one.
        access: Access as the kernel shows it, such as `rw-p`.
        path: Name of the file that is mapped, or of the kernel for it, such as `[heap]`; empty for anonymous memory.
    """

    begin: int
    end: int
    access: str
    path: str

    @property
    def is_private(self) -> bool:
        """Whether it is private, anonymous and writable."""
        is_anonymous = self.path in ("", "[heap]") or self.path.startswith("[anon:")
        return is_anonymous and self.access.startswith("rw") and self.access.endswith("p")


def mappings(pid: int | str = "self") -> Iterator[MappedRange]:
    """Mappings of a process, in the order of their addresses.

    Raises:
        OSError: The process has ended, or belongs to another user.
    """
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        if found := _LINE.fullmatch(line):
            yield MappedRange(int(found[1], 16), int(found[2], 16), found[3], found[4])


def private_mappings() -> Iterator[tuple[int, int]]:
    """Begin and end of each private, anonymous, writable mapping of this process."""
    return ((each.begin, each.end) for each in mappings() if each.is_private)


def advise(begin: int, count: int, advice: int) -> bool:
    """Advise the kernel about `count` bytes of memory from an address on. Return whether it has followed."""
    return bool(_LIBC.madvise(begin, count, advice) == 0)
