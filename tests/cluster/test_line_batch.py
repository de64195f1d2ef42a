"""Lines of an agent that can wait travel together, and others at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from queue import SimpleQueue

import pytest

from ecoshare.cluster.links import LineWriter
from ecoshare.cluster.ray_nodes import batch

LONG_S = 30.0


@pytest.fixture
def writes() -> SimpleQueue[list[bytes]]:
    """Gets the lines of each write."""
    return SimpleQueue()


@pytest.fixture
def writer(writes: SimpleQueue[list[bytes]]) -> LineWriter:
    """A writer which keeps lines for long if they can wait; a test that fails ends by its time limit."""

    def write(lines: Sequence[bytes]) -> None:
        writes.put(list(lines))

    return LineWriter(write, lingers_s=LONG_S)


def test_lines_that_can_wait_come_with_the_next_one_that_cannot(
    writer: LineWriter, writes: SimpleQueue[list[bytes]]
) -> None:
    """If it failed, the end of a job would come to the run later, or each report at the cost of a call of its own."""
    began_s = time.monotonic()
    writer.put(b"report 1", can_wait=True)
    writer.put(b"report 2", can_wait=True)
    writer.put(b"end")
    assert writes.get() == [b"report 1", b"report 2", b"end"]
    writer.put(b"another end")
    assert writes.get() == [b"another end"]
    assert time.monotonic() - began_s < LONG_S


def test_what_can_wait_is_written_before_the_end(writer: LineWriter, writes: SimpleQueue[list[bytes]]) -> None:
    writer.put(b"report", can_wait=True)
    writer.close()
    assert writes.get() == [b"report"]


@pytest.mark.parametrize("lingers_s", [0.0, 0.1])
def test_lines_that_can_wait_do_not_wait_for_ever(writes: SimpleQueue[list[bytes]], lingers_s: float) -> None:
    LineWriter(lambda lines: writes.put(list(lines)), lingers_s=lingers_s).put(b"report", can_wait=True)
    assert writes.get() == [b"report"]


def test_all_lines_that_are_there_travel_in_one_call() -> None:
    lines = SimpleQueue[bytes | str]()
    for line in (b"report 1", b"end", "lost"):
        lines.put(line)
    assert batch(lines) == [b"report 1", b"end", "lost"]
