"""Paging out of a process's own memory, on machines with and without swap."""

from __future__ import annotations

import ctypes
import mmap
import random

import pytest

from ecoshare.base.machine_memory import free_swap_bytes
from ecoshare.lane import own_memory
from tests.lane.forked import ForkedJobs, succeed

MIB = 1 << 20
FILLED_BYTES = 64 * MIB
PRIVATE, SHARED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS


def is_advised(mapping: mmap.mmap) -> bool:
    """Whether the advice covers the whole mapping."""
    begin = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    return any(first <= begin and begin + len(mapping) <= last for first, last in own_memory.private_mappings())


def test_only_private_anonymous_memory_is_advised() -> None:
    """If it failed, memory that other processes read would go with the memory of a job that waits."""
    assert is_advised(mmap.mmap(-1, MIB, PRIVATE))
    assert not is_advised(mmap.mmap(-1, MIB, SHARED))


def fill_and_page_out() -> None:
    """Fill memory, some of it locked, page it out, and read it again."""
    locked = mmap.mmap(-1, MIB, PRIVATE)
    # The kernel refuses the advice for locked memory. Users with a low limit cannot lock, which changes nothing.
    ctypes.CDLL(None).mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(locked))), MIB)
    content = random.Random(7).randbytes(FILLED_BYTES)
    before_bytes = own_memory._resident_bytes()
    gone_bytes = own_memory.page_out()
    now_bytes = own_memory._resident_bytes()
    if free_swap_bytes() > FILLED_BYTES:  # there is room for as much again
        assert gone_bytes > FILLED_BYTES // 2
        assert now_bytes < before_bytes - FILLED_BYTES // 2
    elif free_swap_bytes() == 0:
        assert gone_bytes == 0 and now_bytes >= before_bytes - MIB
    assert content == random.Random(7).randbytes(FILLED_BYTES)


@pytest.mark.nightly
def test_memory_goes_to_swap_and_its_content_comes_back() -> None:
    jobs = ForkedJobs()
    succeed(jobs.start(fill_and_page_out))
