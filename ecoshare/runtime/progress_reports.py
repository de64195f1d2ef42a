"""Reports of the progress of running jobs to the core, about once a second while it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ecoshare.core.events import Event, IterationsDone
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.spread_looks import spread

_PROGRESS_S = 1.0
"""Time (s) between two looks at the progress of a job."""

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
            if self.attempts.live.get(name) is not own:
                continue
            now_s = self.now_s()
            usage = self.attempts.usage(name)
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
