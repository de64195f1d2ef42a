"""Timers of a policy: times at which jobs change their levels or a round begins, without any other event."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

from ecoshare.core.commands import Command, WakeAt
from ecoshare.core.events import Done
from ecoshare.core.policies.base import LevelPolicy
from ecoshare.core.records import Job


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


_ROUND, _LOOK = "", " "
"""Names of the timers of the round and of the next look at running jobs. They differ from the name of every job."""


class PolicyTimers:
    """Timers of one policy.

    They ask the driver for one `WakeAt` at a time, and for another only if an earlier time is needed.
    """

    def __init__(self, levels: LevelPolicy | None, ids: Callable[[], int]) -> None:
        """No timers so far.

        Args:
            levels: Policy of the run, if it moves jobs between levels; else None.
            ids: Function that returns the id of the next command.
        """
        self._levels, self._ids = levels, ids
        self._timers = Timers()
        self._asked: dict[int, float] = {}

    def look(self, job: Job, at_s: float) -> None:
        """Set the timer of a job that has begun to wait or to run."""
        if self._levels is not None:
            self._timers.set(job.spec.name, self._levels.changes_s(job, at_s))

    def forget(self, job: Job) -> None:
        """Delete the timer of a job that has ended or pauses."""
        if self._levels is not None:
            self._timers.set(job.spec.name, math.inf)

    def wake(self) -> list[Command]:
        """`WakeAt` for the next change; empty if an earlier or equal `WakeAt` is under way."""
        next_s = self._timers.next_s
        if next_s == math.inf or next_s >= min(self._asked.values(), default=math.inf):
            return []
        command = WakeAt(self._ids(), next_s)
        self._asked[command.id] = next_s
        return [command]

    def set_round(self, at_s: float) -> None:
        """Set the timer of the next round (s); infinity for none."""
        self._timers.set(_ROUND, at_s)

    def set_look(self, at_s: float) -> None:
        """Set the time (s) at which the places are looked at again; infinity for none."""
        self._timers.set(_LOOK, at_s)

    def owns(self, command: int) -> bool:
        """Whether the command is an unanswered `WakeAt` of these timers."""
        return command in self._asked

    def due(self, event: Done) -> tuple[list[str], bool]:
        """Names of the jobs that may change their level now, and whether a round begins."""
        at_s = max(event.at_s, self._asked.pop(event.command))
        names = self._timers.due(at_s)
        round_begins = _ROUND in names
        return [name for name in names if name not in (_ROUND, _LOOK)], round_begins
