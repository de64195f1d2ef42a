"""Arrivals of the jobs and sweeps of a plan, at their times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ecoshare.core.events import Event, JobArrived, SweepOpened
from ecoshare.runtime.plan import Plan


class Arrivals:
    """Arrivals of a plan.

    Attributes:
        to_come: Number of jobs and sweeps that have not arrived.
    """

    def __init__(self, plan: Plan, now_s: Callable[[], float], tell: Callable[[Callable[..., Event]], None]) -> None:
        """Nothing is to come before `schedule`.

        Args:
            plan: The plan.
            now_s: Time (s) since the run was opened.
            tell: Reports an event to the core.
        """
        self._plan, self._now_s, self._tell = plan, now_s, tell
        self.to_come = 0

    def schedule(self) -> None:
        """Let each sweep and job arrive at its time: at once if that has passed."""
        loop = asyncio.get_running_loop()
        self.to_come = len(self._plan.jobs) + len(self._plan.sweeps)
        coming: list[tuple[float, Callable[..., Event]]] = [
            (sweep.template.arrival_s, partial(SweepOpened, sweep=sweep.spec)) for sweep in self._plan.sweeps
        ]
        coming += [(job.arrival_s, partial(JobArrived, job=job.spec)) for job in self._plan.jobs]
        for arrival_s, make in coming:  # sweeps first: the jobs include their earlier trials
            wait_s = arrival_s - self._now_s()
            if wait_s <= 0:
                self._arrive(make)
            else:
                loop.call_later(wait_s, self._arrive, make)

    def _arrive(self, make: Callable[..., Event]) -> None:
        def made(at_s: float) -> Event:
            self.to_come -= 1
            return make(at_s=at_s)

        self._tell(made)
