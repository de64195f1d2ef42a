"""Timers for changes that need no other event: the queue of a job, the beginning of a round."""

from __future__ import annotations

import math
from heapq import heappop, heappush


class Timers:
    """Named timers. Each name has at most one; a later `set` replaces an earlier one."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}

    def set(self, name: str, at_s: float) -> None:
        """Set the timer `name` to `at_s`; infinity deletes it."""
        if at_s == math.inf:
            self._due.pop(name, None)
        elif self._due.get(name) != at_s:
            self._due[name] = at_s
            heappush(self._heap, (at_s, name))

    @property
    def next_s(self) -> float:
        """Time (s) of the earliest timer; infinity if there is none."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, at_s: float) -> list[str]:
        """Names of the timers that are due at `at_s`. They are deleted."""
        found = []
        while self.next_s <= at_s:
            _, name = heappop(self._heap)
            del self._due[name]
            found.append(name)
        return found
