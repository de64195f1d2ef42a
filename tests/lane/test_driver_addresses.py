"""Addresses that a driver gives up while a process is parked, and mappings of others there."""

from __future__ import annotations

import pytest

from ecoshare.lane.own_memory import MappedRange, taken

DEVICE = "/dev/nvidia0"
BEFORE = [
    MappedRange(10, 20, "rw-p", ""),
    MappedRange(20, 40, "rw-s", DEVICE),
    MappedRange(40, 60, "---p", ""),  # CUDA reserves addresses for later
    MappedRange(60, 70, "rw-s", "/dev/nvidia-uvm"),
]


@pytest.mark.parametrize(
    ("after", "is_taken"),
    [
        ([BEFORE[0]], False),
        ([BEFORE[0], BEFORE[1]], False),
        ([MappedRange(20, 40, "---p", "/memfd:ecoshare-reserved (deleted)")], False),
        ([MappedRange(20, 40, "---p", "")], False),
        ([MappedRange(20, 70, "---p", "")], False),
        ([MappedRange(30, 35, "rw-p", "")], True),
        ([MappedRange(10, 21, "rw-p", "")], True),
        ([MappedRange(69, 90, "r--p", "/lib/a.so")], True),
        ([MappedRange(65, 90, "---p", "")], True),  # the rest of an arena of malloc, say
        ([MappedRange(70, 90, "rw-p", "")], False),
    ],
    ids=[
        "given up",
        "kept",
        "reserved here",
        "reserved by the driver",
        "and merged with what it had reserved",
        "inside",
        "grown into it",
        "a library",
        "reserved by another",
        "beside it",
    ],
)
def test_what_others_have_mapped_there_is_found(after: list[MappedRange], is_taken: bool) -> None:
    assert bool(taken(BEFORE, after)) is is_taken
