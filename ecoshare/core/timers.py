"""What changes by itself as time goes by: a job's queue, the beginning of a round."""

from __future__ import annotations

import math
from heapq import heappop, heappush


class Timers:
    """Times at which something is to be looked at again, by name. The last one set for a name holds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}

    def set(self, name: str, at_s: float) -> None:
        """Look at it then; never where `at_s` is infinite."""
        if at_s == math.inf:
            self._due.pop(name, None)
        elif self._due.get(name) != at_s:
            self._due[name] = at_s
            heappush(self._heap, (at_s, name))

    @property
    def next_s(self) -> float:
        """When the next one is due; infinite where none is."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, at_s: float) -> list[str]:
        """Those whose time has come, which are over with it."""
        found = []
        while self.next_s <= at_s:
            _, name = heappop(self._heap)
            del self._due[name]
            found.append(name)
        return found
