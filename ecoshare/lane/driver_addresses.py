"""Addresses that a GPU's driver gives up while a process is parked, and takes again when it is resumed.

::

    before   ─ /dev/nvidia0 ─┤ other ├─ /dev/nvidia0 ─
    parked   ═══ reserved ═══┤ other ├═══ reserved ═══    no thread maps anything there
    resumed  ─ /dev/nvidia0 ─┤ other ├─ /dev/nvidia0 ─    mapped over the reservation

The driver maps its memory at the old addresses again, over whatever is there by then (MAP_FIXED), while threads of the
process go on. So nothing else may come there meanwhile:

- The thread that waits for the turn holds the interpreter from before the driver gives the addresses up until they are
  reserved: no other thread runs Python then.
- Threads of libraries may map memory even so. The controller looks for that, and does not resume such a process, which
  would go on with wrong values.

Source: reports to gVisor (google/gvisor 14008 and 14776) and DMTCP (dmtcp/dmtcp 1287). Some drivers reserve the
addresses themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ecoshare.lane.own_memory import MappedRange, mappings

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
    """The driver's addresses in this process, while it is about to be parked, and parked."""

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
