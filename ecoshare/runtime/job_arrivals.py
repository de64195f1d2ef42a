"""Arrivals of jobs and sweeps: at their times, and after the jobs that they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial

from ecoshare.base.job_spec import JobSpec, SweepSpec
from ecoshare.core.arrival_gate import ArrivalGate, Eligible, Verdict
from ecoshare.core.events import CancelRequested, DrainRequested, Event, JobArrived, SweepOpened
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.runtime.live_sweeps import Sweeping
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_sweeps import PlannedSweep


class Arrivals:
    """Arrivals of the jobs and sweeps that a run is given.

    Attributes:
        gate: Jobs and sweeps that may not arrive yet.
        never: Jobs and sweeps that were cancelled before they arrived, each with the reason.
        sweeps: All sweeps that were submitted, by name.
        is_open: Whether more jobs may be submitted, so that the run does not end without work.
    """

    def __init__(
        self,
        jobs: dict[str, PlannedJob],
        sweeping: Sweeping,
        now_s: Callable[[], float],
        tell: Callable[[Callable[..., Event | None]], None],
    ) -> None:
        """Nothing is to come before `submit`.

        Args:
            jobs: Jobs of the run, by name; submitted jobs are added.
            sweeping: Sweeps of the run.
            now_s: Time (s) since the run was opened.
            tell: Reports an event to the core; a function that gives None when its turn comes reports nothing.
        """
        self._jobs, self._sweeping, self._now_s, self._tell = jobs, sweeping, now_s, tell
        self.gate = ArrivalGate()
        self.never: dict[str, str] = {}
        self.sweeps: dict[str, PlannedSweep] = {}
        self.is_open = False
        self._coming: dict[str, Callable[..., Event]] = {}

    @property
    def to_come(self) -> bool:
        """Whether a job or sweep is to come, or may be."""
        return self.is_open or bool(self._coming)

    def add(self, plan: Plan) -> None:
        """Add the jobs and sweeps of a plan to the run. They arrive once they are submitted.

        Raises:
            UsageError: The sampler of a sweep cannot be made.
        """
        for sweep in plan.sweeps:
            self.sweeps[sweep.name] = sweep
            self._sweeping.open(sweep)
        for job in plan.jobs:
            self._jobs[job.spec.name] = job
            if job.spec.sweep:  # trials of earlier sessions that run again
                self._sweeping.add(job)

    def forget(self, plan: Plan) -> None:
        """Forget the jobs and sweeps of a plan that were added and will not be submitted."""
        for sweep in plan.sweeps:
            del self.sweeps[sweep.name]
        for job in plan.jobs:
            del self._jobs[job.spec.name]

    def submit(self, plan: Plan, from_s: float = 0.0) -> None:
        """Let each sweep and job of a plan that was added arrive as soon as it may.

        Args:
            plan: The plan.
            from_s: Time (s) from which the arrival times of its jobs count.
        """
        coming: list[tuple[str, PlannedJob, Callable[..., Event]]] = [
            (sweep.name, sweep.template, partial(self._sweep_opened, sweep.spec)) for sweep in plan.sweeps
        ]
        coming += [(job.spec.name, job, partial(self._job_arrived, job.spec.name)) for job in plan.jobs]
        for name, job, make in coming:  # sweeps first: the jobs include their earlier trials
            self.never.pop(name, None)
            self._coming[name] = make
            wait_s = from_s + job.arrival_s - self._now_s()
            source, early = job.source, wait_s > 0
            verdicts = self.gate.submit(name, source.after, source.after_any, plan.ended, early, name in plan.held)
            self._follow(verdicts)
            if early and name in self.gate:
                asyncio.get_running_loop().call_later(wait_s, self._passed, name)

    @property
    def names_to_come(self) -> Collection[str]:
        """Names of the jobs and sweeps that were submitted and have not arrived."""
        return self._coming.keys()

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the sweeps that are over, and the jobs that were cancelled before they arrived."""
        self.sweeps = {name: sweep for name, sweep in self.sweeps.items() if name in names}
        self.never.clear()

    def learn(self, change: Callable[[JobSpec], JobSpec]) -> None:
        """Let the trials that are still to be drawn have what has been measured of their class."""
        for name, sweep in self.sweeps.items():
            template = replace(sweep.template, spec=change(sweep.template.spec))
            self.sweeps[name] = replace(sweep, template=template)
            self._sweeping.learn(self.sweeps[name])

    def release(self, name: str) -> None:
        """Hold a job or sweep at the gate no more."""
        self._follow(self.gate.release(name))

    def _passed(self, name: str) -> None:
        self._follow(self.gate.passed(name))

    def look(self, event: Event, core: Scheduler) -> None:
        """Let those arrive that waited for what has ended with an event, which the core has handled."""
        if isinstance(event, DrainRequested):
            self.is_open = False
            self._coming.clear()
        if isinstance(event, CancelRequested) and event.job in self.sweeps:
            self._sweeping.cancelled.add(event.job)
        if core.stopping or core.draining:
            return  # a resumed run decides anew
        ended = [(job.spec.name, job.state.value) for job in core.ended]
        if isinstance(event, CancelRequested) and self._coming.pop(event.job, None) is not None:
            self.never[event.job] = event.reason
            ended.append((event.job, JobState.CANCELLED.value))
        over = [name for name in self.gate.awaited if name in self.sweeps and name not in self._coming]
        ended += [(name, self._sweep_state(name)) for name in over if core.is_sweep_over(name)]
        for name, state in ended:
            self._follow(self.gate.ended(name, state))

    def _sweep_state(self, name: str) -> str:
        state = self._sweeping.final_state(name)
        return "has no trial that completed" if state is JobState.FAILED else state.value

    def _follow(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            if isinstance(verdict, Eligible):
                self._tell(partial(self._arrived, verdict.name))
            else:
                self._tell(partial(self._cancelled, verdict.name, verdict.reason))

    def _sweep_opened(self, sweep: SweepSpec, at_s: float) -> SweepOpened:
        due = [self._jobs[name].spec.sweep for name in self._coming if name in self._jobs and name not in self.gate]
        return SweepOpened(at_s, sweep, due.count(sweep.name))

    def _job_arrived(self, name: str, at_s: float) -> JobArrived:
        self._sweeping.tell_rest(self._jobs[name])
        return JobArrived(at_s, self._jobs[name].spec)

    def _cancelled(self, name: str, reason: str, at_s: float) -> Event | None:
        # The user may have cancelled the job meanwhile, together with the one that it waited for.
        return CancelRequested(at_s, job=name, reason=reason) if name in self._coming else None

    def _arrived(self, name: str, at_s: float) -> Event | None:
        make = self._coming.pop(name, None)
        return make(at_s=at_s) if make is not None else None  # it was cancelled meanwhile
