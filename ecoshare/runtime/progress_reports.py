"""Reports of the progress of running jobs to the core, about once a second while it changes, and of its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ecoshare.core.events import Event, IterationsDone
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.spread_looks import spread
from ecoshare.values.attempt import Usage

_PROGRESS_S = 1.0
"""Time (s) between two looks at the progress of a job."""

_EARLY_S = 0.1
"""Time (s) between two looks at jobs on processors until their first iterations. From then on a job is in the way of
others, and its group may change (`core/placement/packer.py`)."""

_MEMORY_LOOKS_PER_S = 10.0
"""Most looks a second at the memory of jobs. A look at one takes 0.1 to 3 ms."""


@dataclass(frozen=True, slots=True)
class ProgressReports:
    """Reports of a run.

    Attributes:
        attempts: Attempts in progress.
        watches_memory: Whether the memory of jobs is watched, as on processors.
        now_s: Time (s) since the run was opened.
        tell: Reports an event to the core.
    """

    attempts: Attempts
    watches_memory: bool
    now_s: Callable[[], float]
    tell: Callable[[Callable[..., Event]], None]

    async def keep(self) -> None:
        """Report until cancelled."""
        async for name, own in spread(self.attempts.live.items, _PROGRESS_S):
            if self.attempts.live.get(name) is own:
                self._look(name, own, self.attempts.usage(name))

    async def keep_early(self) -> None:
        """Report the first iterations of jobs on processors until cancelled."""
        while self.watches_memory:
            await asyncio.sleep(_EARLY_S)
            for name in [name for name, own in self.attempts.live.items() if not own.known.done]:
                if (usage := self.attempts.usage(name)).done:
                    self._look(name, self.attempts.live[name], usage)

    def _look(self, name: str, own: LiveAttempt, usage: Usage) -> None:
        """Tell the core of the usage of a job, if it is news."""
        now_s = self.now_s()
        if self.watches_memory:
            usage = replace(usage, peak_bytes=self._peak_bytes(name, own, now_s))
        if own.is_news(usage, now_s):
            own.known, own.told_s = usage, now_s
            self.tell(partial(IterationsDone, job=name, usage=usage))

    def _peak_bytes(self, name: str, own: LiveAttempt, now_s: float) -> int:
        """Largest memory (bytes) of a job so far. The more jobs, the less often each is looked at."""
        if now_s - own.measured_s < len(self.attempts.live) / _MEMORY_LOOKS_PER_S:
            return self.attempts.largest_seen_bytes(name)
        own.measured_s = now_s
        return self.attempts.peak_bytes(name)
