"""Memory that processes share, without a descriptor."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pytest

from ecoshare.lane.tables.shared_memory import mapped


def maps(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_it_stays_as_long_as_a_part_of_it_is_used_and_holds_no_descriptor(tmp_path: Path) -> None:
    (path := tmp_path / "table").write_bytes(bytes(4096))
    before = descriptors()
    descriptor = os.open(path, os.O_RDWR)
    words = (ctypes.c_int * 2).from_buffer(mapped(descriptor, 4096))
    os.close(descriptor)
    assert descriptors() == before
    gc.collect()
    assert maps(path) == 1
    words[1] = 7
    assert path.read_bytes()[4:8] == (7).to_bytes(4, "little")
    if not os.fork():
        words[1] = 8
        os._exit(0)
    os.wait()
    assert words[1] == 8
    del words
    assert maps(path) == 0


def test_what_cannot_be_mapped_is_told(tmp_path: Path) -> None:
    (path := tmp_path / "table").write_bytes(bytes(4096))
    with path.open("rb") as file, pytest.raises(OSError, match="Permission denied"):
        mapped(file.fileno(), 4096)
