"""Memory of the calling process, as the kernel keeps it: its mappings, huge pages, swap, addresses of a driver."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ecoshare.base.machine_memory import free_swap_bytes

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


HUGE_BYTES = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of <linux/mman.h>


def use_huge_pages() -> int:
    """Put the private anonymous memory of this process into huge pages, as far as it fills some.

    ::

        pages of 4 KiB   ▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏▏   220 MB with torch: 55,000 entries, copied by each fork, and
                                                    taken down again when the job's process ends
        pages of 2 MiB   ▉▉▉▉▉▉                     110 entries; a write of a job copies 4 KiB, as before

    The kernel makes them on request, from Linux 6.1 on, whatever its general policy on huge pages is.

    A process that shares pages with this one keeps the old ones, so this is for a process that was not forked, and has
    forked none yet. It takes 0.15 to 0.35 s for the 220 MB of a server.

    Returns:
        Number of huge pages; 0 if the kernel has none, or refuses.
    """
    made = 0
    for begin, end in private_mappings():
        for address in range(-(-begin // HUGE_BYTES) * HUGE_BYTES, end - HUGE_BYTES + 1, HUGE_BYTES):
            # Refused where no memory is in use, and by an older kernel.
            made += advise(address, HUGE_BYTES, _COLLAPSE)
    return made


_PAGEOUT = 21  # MADV_PAGEOUT of <linux/mman.h>, from Linux 5.4 on


def page_out() -> int:
    """Move the private anonymous memory of this process to swap, as far as there is room.

    The kernel keeps the content, and brings each page back at its next use.

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


def own_peak_bytes() -> int:
    """Largest memory (bytes) of this process so far, without the pages of files that it has mapped now.

    It is too small if the process has mapped more of its files after that moment.

    Raises:
        OSError, ValueError, KeyError: The kernel does not tell it.
    """
    words = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    found = {each[0]: each[1] for each in words if len(each) > 1}
    return (int(found["VmHWM:"]) - int(found["RssFile:"])) * 1024


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


_DEVICE = re.compile(r"/dev/nvidia[^/]*$")
_NAME = "ecoshare-reserved"
_NO_ACCESS, _FIXED_NOREPLACE = 0, 0x100000
_FAILED = ctypes.c_void_p(-1).value

_mmap = ctypes.PyDLL(None, use_errno=True).mmap
"""mmap(2), for which the calling thread keeps the interpreter."""
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap = ctypes.PyDLL(None, use_errno=True).munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def is_devices(mapping: MappedRange) -> bool:
    """Whether a mapping is memory of a GPU or its driver."""
    return _DEVICE.search(mapping.path) is not None


def is_reserved(mapping: MappedRange) -> bool:
    """Whether this module has reserved it."""
    return mapping.path.startswith(f"/memfd:{_NAME}")


def _is_held_free(mapping: MappedRange) -> bool:
    """Whether it is anonymous, and may not be accessed: a driver's own reservation, say."""
    return not mapping.path and mapping.access.startswith("---")


def taken(before: Iterable[MappedRange], after: Iterable[MappedRange]) -> list[MappedRange]:
    """Mappings of others where a driver had mapped its own: a process with one must not be resumed.

    Args:
        before: Mappings of the process before it was parked.
        after: Present mappings of the process.
    """
    kept = list(before)
    held = [each for each in kept if is_devices(each)]
    free = _merged([*held, *filter(_is_held_free, kept)])
    return [
        each
        for each in after
        if not (is_devices(each) or is_reserved(each))
        and any(own.begin < each.end and each.begin < own.end for own in held)
        and not (_is_held_free(each) and any(begin <= each.begin and each.end <= end for begin, end in free))
    ]


def _merged(ranges: Sequence[MappedRange]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for each in sorted(ranges):
        if merged and each.begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], each.end))
        else:
            merged.append((each.begin, each.end))
    return merged


class DriverAddresses:
    """The driver's addresses in this process, while it is about to be parked, and parked.

    ::

        before   ─ /dev/nvidia0 ─┤ other ├─ /dev/nvidia0 ─
        parked   ═══ reserved ═══┤ other ├═══ reserved ═══    no thread maps anything there
        resumed  ─ /dev/nvidia0 ─┤ other ├─ /dev/nvidia0 ─    mapped over the reservation

    The driver maps its memory at the old addresses again, over whatever is there by then (MAP_FIXED), while threads of
    the process go on. So nothing else may come there meanwhile:

    - The thread that waits for the turn holds the interpreter from before the driver gives the addresses up until they
      are reserved: no other thread runs Python then.
    - Threads of libraries may map memory even so. The controller looks for that, and does not resume such a process,
      which would go on with wrong values.

    Source: reports to gVisor (google/gvisor 14008 and 14776) and DMTCP (dmtcp/dmtcp 1287). Some drivers reserve the
    addresses themselves.
    """

    def __init__(self) -> None:
        self._ranges: list[MappedRange] = []

    def note(self) -> None:
        """Note which addresses the driver has. They are to be reserved as soon as it has given them up."""
        self._ranges = []
        with contextlib.suppress(OSError):  # the script has as many files open as it may have
            self._ranges = list(filter(is_devices, mappings()))

    @property
    def are_noted(self) -> bool:
        """Whether the driver had addresses at the last `note`."""
        return bool(self._ranges)

    def reserve(self, *first: Callable[[], object]) -> None:
        """Reserve the addresses. A mapping of the driver, or of anything else, stays as it is.

        Args:
            first: Calls to make before, of built-in functions. No other thread runs Python between them and the end.
        """
        try:
            named = os.memfd_create(_NAME)  # the name tells the reservations from other mappings
        except OSError:  # no file may be opened: nothing is reserved, and the controller sees what comes there
            named = -1
        how = (_NO_ACCESS, mmap.MAP_PRIVATE | _FIXED_NOREPLACE, named, 0)
        reserve = [partial(_mmap, each.begin, each.end - each.begin, *how) for each in self._ranges]
        # One call: between two of its own, the interpreter would let another thread run.
        placed = list(map(partial.__call__, [*map(partial, first), *reserve]))[len(first) :]
        if named >= 0:
            os.close(named)
        for each, begin in zip(self._ranges, placed, strict=True):
            if begin not in (each.begin, _FAILED):  # a kernel before 4.17 has placed it elsewhere
                _munmap(begin, each.end - each.begin)

    def release(self) -> None:
        """Release what is still reserved: the process runs again, or was not parked."""
        if not self._ranges:
            return
        with contextlib.suppress(OSError):  # the rest of them costs addresses only
            for each in filter(is_reserved, mappings()):
                _munmap(each.begin, each.end - each.begin)
        self._ranges = []
