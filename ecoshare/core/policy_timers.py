"""What a policy does as time goes by, without any other event: levels that change, and rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from ecoshare.core.commands import Command, WakeAt
from ecoshare.core.events import Done
from ecoshare.core.policies.base import LevelPolicy, Policy, RoundPolicy
from ecoshare.core.records import Job
from ecoshare.core.timers import Timers

_ROUND = ""
"""Name of the round's timer: no job's name is empty."""


class PolicyTimers:
    """Asks to be woken when the policy must look again: one `WakeAt` at a time, unless an earlier one is needed.

    Attributes:
        in_rounds: Whether the policy decides in rounds.
        began_s: When the last one began.
    """

    def __init__(self, policy: Policy, at_s: float, ids: Callable[[], int]) -> None:
        """A run is opened.

        Args:
            ids: Gives the next command's id.
        """
        self.in_rounds = isinstance(policy, RoundPolicy)
        self._levels = policy if isinstance(policy, LevelPolicy) else None
        self._round_s = cast(RoundPolicy, policy).round_s if self.in_rounds else math.inf
        self._timers, self._ids = Timers(), ids
        self._asked: dict[int, float] = {}
        self.began_s = -math.inf
        if self.in_rounds:
            self._timers.set(_ROUND, at_s)

    def look(self, job: Job, at_s: float) -> None:
        """A job has begun to wait or to run."""
        if self._levels is not None:
            self._timers.set(job.spec.name, self._levels.changes_s(job, at_s))

    def forget(self, job: Job) -> None:
        """A job has ended."""
        if self._levels is not None:
            self._timers.set(job.spec.name, math.inf)

    def wake(self) -> list[Command]:
        """What to ask for, if the next change comes before all that was asked for."""
        next_s = self._timers.next_s
        if next_s >= min(self._asked.values(), default=math.inf):
            return []
        command = WakeAt(self._ids(), next_s)
        self._asked[command.id] = next_s
        return [command]

    def round_begins(self, at_s: float) -> None:
        """A round begins now, and the next one when it is over."""
        self.began_s = at_s
        self._timers.set(_ROUND, at_s + self._round_s)

    def rest(self) -> None:
        """No round is to begin before a job comes."""
        self.began_s = -math.inf
        self._timers.set(_ROUND, math.inf)

    def owns(self, command: int) -> bool:
        """Whether it is a `WakeAt` of these."""
        return command in self._asked

    def due(self, event: Done) -> tuple[list[str], bool]:
        """The jobs whose level changes now, and whether a round begins."""
        at_s = max(event.at_s, self._asked.pop(event.command))
        names = self._timers.due(at_s)
        round_begins = _ROUND in names
        if round_begins:
            names.remove(_ROUND)
        return names, round_begins
