"""Coming events of a simulation, in the order of their times."""

from __future__ import annotations

import math
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any


class What(IntEnum):
    """Kinds of coming events, in their order at one moment."""

    DONE = 0
    STOPPED = 1
    LANE = 2
    MEASURED = 3
    WAKE = 4


class ComingEvents:
    """Heap of coming events. Events of one time and kind come in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, What, int, Any]] = []
        self._order = 0

    def push(self, at_s: float, what: What, subject: Any) -> None:
        """Add an event at a time (s)."""
        self._order += 1
        heappush(self._heap, (at_s, what, self._order, subject))

    def pop(self) -> tuple[float, What, Any]:
        """Take out the next event: its time (s), kind and subject.

        Raises:
            IndexError: No event will come.
        """
        at_s, what, _, subject = heappop(self._heap)
        return at_s, what, subject

    @property
    def next_s(self) -> float:
        """Time (s) of the next event; infinite if none will come."""
        return self._heap[0][0] if self._heap else math.inf
