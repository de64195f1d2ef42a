"""Present memory of attempts: when it is read, and from where."""

from __future__ import annotations

import os
from unittest.mock import Mock

import pytest

from ecoshare.lane import processes
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
