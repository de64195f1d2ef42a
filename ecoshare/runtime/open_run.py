"""A run that stays open, for what gives it jobs: a queue, say. All calls are made in the loop of the run.

::

    JobSource.keep(run) ──submit, request──► OpenRun ──► arrivals ──► JobArrived ──► core
    JobSource.look      ◄──────────────────────────────── each event, after the core has handled it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ecoshare.core.commands import Command
from ecoshare.core.events import ClassesKnown, Event
from ecoshare.core.scheduler import Scheduler
from ecoshare.lane.serving.request_intervals import RequestCounts
from ecoshare.record.accounts.run_energy import LiveEnergy
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.job_arrivals import Arrivals
from ecoshare.runtime.live_sweeps import Sweeping
from ecoshare.runtime.live_views import DeviceViews, Viewing
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob

DISK = "disk"
"""Subject of the trouble that the disk of the log is full."""


class JobSource(Protocol):
    """Source of the jobs of a run that stays open."""

    def resumed(self, plan: Plan) -> None:
        """Take note of what earlier sessions have left, and of what has ended in them (`Plan.ended`).

        Args:
            plan: Plan of the jobs and sweeps that are left.
        """
        ...

    async def keep(self, run: OpenRun) -> None:
        """Give jobs to the run until cancelled.

        Args:
            run: The run, which has begun.
        """
        ...

    def look(self, event: Event, commands: Sequence[Command], core: Scheduler) -> None:
        """Take note of an event, and of the commands that followed. The core has handled it already."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether the source needs nothing more of jobs that have ended, so that the run may forget them."""
        ...


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that stays open.

    Attributes:
        plan: Plan that the run began with.
        folder: The run folder.
        core: Scheduler of the run.
        arrivals: Arrivals of jobs.
        sweeping: Sweeps of the run.
        jobs: All jobs that the run was given, by name.
        tell: Reports an event to the core. A function that gives None when its turn comes reports nothing.
        now_s: Returns the time (s) since the run was opened.
        viewing: Present state of each job and sweep.
        devices: Present state of each device.
        energy: Joules so far.
        requests: Returns the sums over the requests of a service.
        is_warm: Returns whether torch is loaded.
        warnings: Present troubles in words, by subject. The source may add its own.
        ask_to_stop: Stops the run: at the next boundaries of the jobs at the first call, at once at the second.
    """

    plan: Plan
    folder: RunFolder
    core: Scheduler
    arrivals: Arrivals
    sweeping: Sweeping
    jobs: Mapping[str, PlannedJob]
    tell: Callable[[Callable[..., Event | None]], None]
    now_s: Callable[[], float]
    viewing: Viewing
    devices: DeviceViews
    energy: LiveEnergy
    requests: Callable[[str], RequestCounts]
    is_warm: Callable[[], bool]
    ask_to_stop: Callable[[], None]
    warnings: dict[str, str]

    def add(self, plan: Plan) -> None:
        """Add the jobs and sweeps of a plan, which come once they are submitted.

        Args:
            plan: Plan of jobs and sweeps that the run has not had, on its devices.

        Raises:
            UsageError: The sampler of a sweep cannot be made.
        """
        self.arrivals.add(plan)

    def forget(self, plan: Plan) -> None:
        """Forget the jobs and sweeps of a plan that were added and will not be submitted."""
        self.arrivals.forget(plan)

    def submit(self, plan: Plan) -> None:
        """Let the jobs and sweeps of a plan that was added come.

        Args:
            plan: The plan. Profiles and measurements of earlier runs that it has are used, too.
        """
        self.plan.known.update(plan.known)
        if plan.known_settings or plan.colocations or plan.known_responses:
            self.tell(
                partial(
                    ClassesKnown,
                    known_settings=plan.known_settings,
                    colocations=plan.colocations,
                    known_responses=plan.known_responses,
                )
            )
        self.arrivals.submit(plan, self.now_s())
