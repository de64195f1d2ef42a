"""Looks at running jobs, again and again: their progress, missed targets, and programs that only wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ecoshare.base.attempt import Usage
from ecoshare.base.clock import loop_s
from ecoshare.base.service import REQUESTS
from ecoshare.core.events import Event, IterationsDone, PhaseBegan, StopRequested, TargetMissed
from ecoshare.core.settings.phase_watch import PhaseLengths
from ecoshare.core.settings.service_targets import TargetWatch
from ecoshare.lane import processes
from ecoshare.lane.files import of_attempt
from ecoshare.lane.serving.request_intervals import RequestInterval, against_target, read_from
from ecoshare.lane.tables.table_layout import SlotState
from ecoshare.runtime.nodes.attempts import Attempts, LiveAttempt

Item = TypeVar("Item")

_AT_ONCE = 4
"""Fewest items that are looked at at once, as far as there are so many."""

_MOST_PARTS = 10
"""Most parts of a period."""


async def spread(items: Callable[[], Collection[Item]], period_s: float) -> AsyncIterator[Item]:
    """Yield each item once in a period, without end.

    ::

        period    ▏▌  ▌  ▌  ▌  ▏▌  ▌  ▌  ▌  ▏        not    ▏████        ▏████        ▏

    Args:
        items: Returns the items of the next period. Some of them may be gone before they are yielded.
        period_s: Time (s) between two looks at an item.
    """
    while True:
        left = list(items())
        parts = min(_MOST_PARTS, max(1, len(left) // _AT_ONCE))
        for part in range(parts):
            await asyncio.sleep(period_s / parts)
            for each in islice(left, part, None, parts):
                yield each


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
        watches_phases: Whether the phases of jobs are watched, as where settings may be changed.
        now_s: Time (s) since the run was opened.
        tell: Reports an event to the core.
    """

    attempts: Attempts
    watches_memory: bool
    watches_phases: bool
    now_s: Callable[[], float]
    tell: Callable[[Callable[..., Event]], None]
    _lengths: PhaseLengths = field(default_factory=PhaseLengths)

    async def keep(self) -> None:
        """Report until cancelled."""
        async for name, own in spread(self.attempts.live.items, _PROGRESS_S):
            if self.attempts.live.get(name) is own:
                usage = self.attempts.usage(name)
                self._look(name, own, usage)
                if self.watches_phases and own.job.spec.service is None:
                    self._look_at_phase(name, own, usage)

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

    def _look_at_phase(self, name: str, own: LiveAttempt, usage: Usage) -> None:
        """Tell the core of a phase that is worth another setting."""
        is_away, job_class = self.attempts.slot(name).seat == SlotState.AWAY, own.job.spec.job_class
        if (phase := own.phases.saw(self.now_s(), usage, is_away, job_class, self._lengths)) is not None:
            self.tell(partial(PhaseBegan, job=name, phase=phase))

    def _peak_bytes(self, name: str, own: LiveAttempt, now_s: float) -> int:
        """Largest memory (bytes) of a job so far. The more jobs, the less often each is looked at."""
        if now_s - own.measured_s < len(self.attempts.live) / _MEMORY_LOOKS_PER_S:
            return self.attempts.largest_seen_bytes(name)
        own.measured_s = now_s
        return self.attempts.peak_bytes(name)


_TARGET_LOOK_S = 1.0
"""Time (s) between two looks at the record of a service, which writes once a second."""


@dataclass(slots=True)
class _Watched:
    """Attempt of a service that is watched.

    Attributes:
        known_bytes: Size of the part of its record that is known.
    """

    attempt: int
    watch: TargetWatch
    known_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TargetReports:
    """Reports of a run.

    Attributes:
        attempts: Attempts in progress.
        folder_of: Folder of a job, by its name.
        now_s: Time (s) since the run was opened.
        tell: Reports an event to the core.
        hear: Gets the intervals that a service has recorded, with its name and the number of its attempt.
    """

    attempts: Attempts
    folder_of: Callable[[str], Path]
    now_s: Callable[[], float]
    tell: Callable[[Callable[..., Event]], None]
    hear: Callable[[str, int, Sequence[RequestInterval]], None]
    _watched: dict[str, _Watched] = field(default_factory=dict)

    async def keep(self) -> None:
        """Report until cancelled."""
        async for name, own in spread(self._services, _TARGET_LOOK_S):
            if self.attempts.live.get(name) is own:
                self._look_at(name, own.attempt)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all other services."""
        for name in self._watched.keys() - names:
            del self._watched[name]

    def look(self) -> None:
        """Read what the services have recorded since the last look, and report the targets that were missed."""
        for name, own in self._services():
            self._look_at(name, own.attempt)

    def _services(self) -> list[tuple[str, LiveAttempt]]:
        return [(name, own) for name, own in self.attempts.live.items() if own.job.spec.service is not None]

    def missed_share(self, name: str) -> float:
        """Part of the requests of the last minute that missed the target of a service; 0 without any."""
        watched = self._watched.get(name)
        return watched.watch.missed_share if watched is not None else 0.0

    def _look_at(self, name: str, attempt: int) -> None:
        watched = self._watched.get(name)
        if watched is None or watched.attempt != attempt:
            if watched is not None:
                self._read(name, watched)  # the last lines of the earlier attempt
            watched = self._watched[name] = _Watched(attempt, TargetWatch(self.now_s()))
        found = self._read(name, watched)
        if (missed := watched.watch.saw(self.now_s(), *against_target(found))) is not None:
            self.tell(partial(TargetMissed, job=name, requests=missed.requests, missed=missed.missed))

    def _read(self, name: str, watched: _Watched) -> list[RequestInterval]:
        path = of_attempt(self.folder_of(name), REQUESTS, watched.attempt)
        found, watched.known_bytes = read_from(path, watched.known_bytes)
        self.hear(name, watched.attempt, found)
        return found


WAITS_S = 30.0
"""Time (s) without an iteration and without work after which programs count as waiting."""

_IDLE = 0.01
"""Processor time / wall time up to which the processes of the programs do no work."""

_WAITING_LOOK_S = 1.0


class WaitingWatch:
    """Watch over the programs of a run that only measures.

    A server waits for requests, and none come. Other programs wait for input or for a lock. The processor time tells
    them from programs that load data or compile before their first iteration.

    Attributes:
        is_over: Whether the run was stopped, because its programs wait.
    """

    def __init__(self, attempts: Attempts, tell: Callable[[Callable[..., Event]], None]) -> None:
        """Watch nothing yet.

        Args:
            attempts: Attempts in progress.
            tell: Reports an event to the core.
        """
        self.is_over = False
        self._attempts, self._tell = attempts, tell
        self._since_s, self._done, self._cpu_s = 0.0, -1, 0.0

    async def keep(self) -> None:
        """Look once a second, until the programs wait or until cancelled."""
        while not self.is_over:
            await asyncio.sleep(_WAITING_LOOK_S)
            names = list(self._attempts.live)
            shown = [self._attempts.slot(name).process()[0] for name in names]
            cpu_s = sum(processes.processor_s(processes.family(pid)) for pid in shown if pid)
            self.look(loop_s(), sum(self._attempts.usage(name).done for name in names), cpu_s)

    def look(self, now_s: float, done: int, cpu_s: float) -> None:
        """Stop the run if the programs have done too little for too long.

        Args:
            now_s: Time (s) now.
            done: Number of iterations of all programs.
            cpu_s: Processor time (s) of all their processes.
        """
        if done != self._done or abs(cpu_s - self._cpu_s) > _IDLE * WAITS_S:
            self._since_s, self._done, self._cpu_s = now_s, done, cpu_s
        elif now_s - self._since_s >= WAITS_S and not self.is_over:
            self.is_over = True
            self._tell(partial(StopRequested, at_once=True))
