"""Reports of services that have missed their targets for a minute, from what they record about their requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ecoshare.core.events import Event, TargetMissed
from ecoshare.core.service_targets import TargetWatch
from ecoshare.lane.files import of_attempt
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.spread_looks import spread
from ecoshare.serving.request_intervals import RequestInterval, against_target, read_from
from ecoshare.values.service import REQUESTS

_LOOK_S = 1.0
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
        async for name, own in spread(self._services, _LOOK_S):
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
