"""Arrivals of the jobs and sweeps of a plan: at their times, and after the jobs that they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from ecoshare.core.arrival_gate import COMPLETED, ArrivalGate, Eligible, Verdict
from ecoshare.core.events import CancelRequested, Event, JobArrived, SweepOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.states import JobState
from ecoshare.runtime.live_sweeps import Sweeping
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob


class Arrivals:
    """Arrivals of a plan.

    Attributes:
        gate: Jobs and sweeps that may not arrive yet.
        never: Jobs and sweeps that were cancelled before they arrived, each with the reason.
    """

    def __init__(
        self,
        plan: Plan,
        sweeping: Sweeping,
        now_s: Callable[[], float],
        tell: Callable[[Callable[..., Event | None]], None],
    ) -> None:
        """Nothing is to come before `schedule`.

        Args:
            plan: The plan.
            sweeping: Sweeps of the run.
            now_s: Time (s) since the run was opened.
            tell: Reports an event to the core; a function that gives None when its turn comes reports nothing.
        """
        self._plan, self._sweeping, self._now_s, self._tell = plan, sweeping, now_s, tell
        self.gate = ArrivalGate()
        self.never: dict[str, str] = {}
        self._coming: dict[str, Callable[..., Event]] = {}
        self._sweeps = {sweep.name for sweep in plan.sweeps}

    @property
    def to_come(self) -> int:
        """Number of jobs and sweeps that have not arrived, and may."""
        return len(self._coming)

    def schedule(self) -> None:
        """Let each sweep and job arrive as soon as it may."""
        for sweep in self._plan.sweeps:  # sweeps first: the jobs include their earlier trials
            self._submit(sweep.name, sweep.template, partial(SweepOpened, sweep=sweep.spec))
        for job in self._plan.jobs:
            self._submit(job.spec.name, job, partial(JobArrived, job=job.spec))

    def _submit(self, name: str, job: PlannedJob, make: Callable[..., Event]) -> None:
        self._coming[name] = make
        wait_s = job.arrival_s - self._now_s()
        source = job.source
        self._follow(self.gate.submit(name, source.after, source.after_any, self._plan.ended, early=wait_s > 0))
        if name in self.gate and wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self._passed, name)

    def _passed(self, name: str) -> None:
        self._follow(self.gate.passed(name))

    def look(self, event: Event, core: Scheduler) -> None:
        """Let those arrive that waited for what has ended with an event, which the core has handled."""
        if core.stopping:
            return  # a resumed run decides anew
        ended = [(job.spec.name, job.state.value) for job in core.ended]
        if isinstance(event, CancelRequested) and self._coming.pop(event.job, None) is not None:
            self.never[event.job] = event.reason
            ended.append((event.job, JobState.CANCELLED.value))
        over = [name for name in self.gate.awaited if name in self._sweeps and name not in self._coming]
        ended += [(name, self._state(name)) for name in over if core.is_sweep_over(name)]
        for name, state in ended:
            self._follow(self.gate.ended(name, state))

    def _state(self, sweep: str) -> str:
        """Final state of a sweep: it has completed if one of its trials has."""
        return COMPLETED if self._sweeping.ended_in[sweep][JobState.COMPLETED] else "has no trial that completed"

    def _follow(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            if isinstance(verdict, Eligible):
                self._tell(partial(self._arrived, verdict.name))
            else:
                self._tell(partial(CancelRequested, job=verdict.name, reason=verdict.reason))

    def _arrived(self, name: str, at_s: float) -> Event | None:
        make = self._coming.pop(name, None)
        return make(at_s=at_s) if make is not None else None  # it was cancelled meanwhile
