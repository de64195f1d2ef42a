"""Reports of the progress of running jobs to the core, about once a second while it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ecoshare.core.events import Event, IterationsDone
from ecoshare.core.records import Job
from ecoshare.core.states import JobState
from ecoshare.runtime.attempts import Attempts

_PROGRESS_S = 1.0
"""Time (s) between two looks at the progress of jobs."""


@dataclass(frozen=True, slots=True)
class ProgressReports:
    """Reports of a run.

    Attributes:
        jobs: Jobs as the core knows them, by name.
        attempts: Attempts in progress.
        watches_memory: Whether the memory of jobs is watched, as on processors.
        now_s: Time (s) since the run was opened.
        tell: Reports an event to the core.
    """

    jobs: Mapping[str, Job]
    attempts: Attempts
    watches_memory: bool
    now_s: Callable[[], float]
    tell: Callable[[Callable[..., Event]], None]

    async def keep(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(_PROGRESS_S)
            for name, own in self.attempts.live.items():
                if self.jobs[name].state is not JobState.RUNNING:
                    continue
                usage, now_s = replace(self.attempts.usage(name), peak_bytes=self._peak_bytes(name)), self.now_s()
                if own.is_news(usage, now_s):
                    own.known, own.told_s = usage, now_s
                    self.tell(partial(IterationsDone, job=name, usage=usage))

    def _peak_bytes(self, name: str) -> int:
        return self.attempts.peak_bytes(name) if self.watches_memory else 0
