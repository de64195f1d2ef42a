"""Present memory of attempts: when it is read, and from where."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from ecoshare.lane import processes
from ecoshare.lane.own_memory import own_peak_bytes
from ecoshare.runtime.nodes.attempts import Footprints


def test_an_attempt_is_read_when_it_is_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read takes milliseconds and stops the process for so long, and by the hundred short jobs are seen once only."""
    read = Mock(side_effect=processes.proportional_bytes)
    monkeypatch.setattr(processes, "proportional_bytes", read)
    footprints, own = Footprints(), [os.getpid()]
    assert footprints.bytes("short/1", own, None) is None and not read.called
    seen = footprints.bytes("short/1", own, None)
    assert seen is not None and 0 < seen <= processes.resident_bytes(own)
    assert footprints.bytes("short/1", own, None, sharing=2) == seen // 2
    assert read.call_count == 1, "its resident size has not changed"
    assert footprints.peak_bytes("short/1", own) == footprints.largest_seen_bytes("short/1") == seen
    footprints.forget("short/1")
    assert footprints.bytes("short/1", own, None) is None and read.call_count == 1


def test_pages_of_a_mapped_file_are_no_memory_of_the_job(tmp_path: Path) -> None:
    (path := tmp_path / "data").write_bytes(b"x" * (64 << 20))
    own = [os.getpid()]
    before, resident, peak = processes.proportional_bytes(own), processes.resident_bytes(own), own_peak_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert sum(data[place] for place in range(0, len(data), mmap.PAGESIZE)) > 0
        assert processes.resident_bytes(own) - resident > 48 << 20, "they are there"
        assert processes.proportional_bytes(own) - before < 16 << 20
        assert own_peak_bytes() - peak < 16 << 20
    private = bytearray(b"y" * (64 << 20))
    assert processes.proportional_bytes(own) - before > 48 << 20, "and memory of its own counts"
    assert len(private) == 64 << 20


def test_the_driver_tells_what_is_on_a_gpu() -> None:
    footprints = Footprints()
    assert footprints.bytes("one/1", [7, 8, 9], {7: 100, 8: 20}) == 120
    assert footprints.bytes("one/1", [7, 8], {7: 100, 8: 20}, sharing=3) == 40
    assert footprints.bytes("one/1", [9], {7: 100}) is None


def test_a_process_with_0_bytes_on_a_gpu_is_not_known() -> None:
    """Drivers in some containers name the right process so. A context alone takes hundreds of MiB."""
    footprints = Footprints()
    assert footprints.bytes("a/1", [7, 8], {7: 0}) is None
    assert footprints.bytes("a/1", [7, 8], {7: 0, 8: 5}) == 5
