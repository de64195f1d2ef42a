"""Lines of an agent that can wait travel together, and others at once."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import pytest

from ecoshare.cluster import ray_nodes
from ecoshare.cluster.ray_nodes import batch

PATIENT = (b"report",)


def queued(*lines: bytes | str) -> SimpleQueue[bytes | str]:
    found: SimpleQueue[bytes | str] = SimpleQueue()
    for line in lines:
        found.put(line)
    return found


def test_a_line_that_cannot_wait_comes_at_once_with_all_that_are_there() -> None:
    began_s = time.monotonic()
    assert batch(queued(b"report 1", b"end", b"report 2"), PATIENT) == [b"report 1", b"end", b"report 2"]
    assert batch(queued("lost"), PATIENT) == ["lost"]
    assert time.monotonic() - began_s < ray_nodes.LINGERS_S


def test_lines_that_can_wait_come_with_the_next_one_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_nodes, "LINGERS_S", 30.0)
    lines = queued(b"report 1")
    threading.Timer(0.2, lines.put, [b"end"]).start()
    assert batch(lines, PATIENT) == [b"report 1", b"end"]


def test_lines_that_can_wait_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_nodes, "LINGERS_S", 0.1)
    monkeypatch.setattr(ray_nodes, "WAITS_S", 0.1)
    assert batch(queued(b"report 1", b"report 2"), PATIENT) == [b"report 1", b"report 2"]
    assert batch(queued(), PATIENT) == []
