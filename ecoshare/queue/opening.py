"""Opens a queue, or goes on with one that was stopped or killed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from ecoshare.common.plural import counted
from ecoshare.devices.occupancy import DeviceAdmission, occupied
from ecoshare.errors import UsageError
from ecoshare.jobs.load import LoadedJobs
from ecoshare.queue.http_server import served
from ecoshare.queue.job_store import JobRow, JobStore
from ecoshare.queue.leftover_jobs import leftover_jobs, no_jobs
from ecoshare.queue.live_queue import LiveQueue, described
from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.record import submitted_jobs
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime import run_opening

if TYPE_CHECKING:
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.plan import Plan
    from ecoshare.runtime.run_lifecycle import FinishedRun
    from ecoshare.runtime.signals import StopSignals
    from ecoshare.values.device import DeviceInfo

PlanJobs = Callable[[LoadedJobs, "tuple[DeviceInfo, ...]", Collection[str]], "Plan"]
"""Plans jobs on devices, beside jobs of other classes."""


def open_queue(
    name: str,
    plan_jobs: PlanJobs,
    find: Callable[[], tuple[DeviceInfo, ...]],
    progress: Callable[[], ProgressDisplay],
    resume: bool,
    admission: DeviceAdmission,
    say: Callable[[str], None],
    signals: StopSignals,
) -> FinishedRun:
    """Serve a queue until it is ended.

    Args:
        name: Name of the queue.
        plan_jobs: Plans jobs as the user asked for.
        find: Finds the devices of a queue that begins; one that goes on keeps its own.
        progress: Makes the display that gets the progress of the run.
        resume: Whether jobs that an earlier session has left go on. Otherwise there must be none.
        admission: Reaction to a run that uses a device.
        say: Shows a note to the user.
        signals: Signals of the process.

    Raises:
        UsageError: The queue is up, or has jobs left without `resume`.
        UnfitEnvironment: The machine cannot run the queue.
    """
    folder = QueueFolder.of(name)
    with folder.locked(), closing(JobStore(folder.database)) as store:
        left = store.left()
        if left and not resume:
            have = "has" if len(left) == 1 else "have"
            raise UsageError(
                f"{counted(len(left), 'job')} of the queue {name!r} {have} not ended",
                f"`ecoshare up --resume{folder.option}` goes on with them; remove {folder.path} to forget them",
            )
        if (before := _run_of(folder, left)) is not None:
            return _reopened(folder, before, store, plan_jobs, progress(), admission, say, signals)
        with occupied(find, admission, say) as occupancy:
            devices = occupancy.devices

            def planner(loaded: LoadedJobs, beside: Collection[str]) -> Plan:
                return plan_jobs(loaded, devices, beside)

            plan = leftover_jobs(name, store, planner)
            queue = LiveQueue(name, store, planner, partial(served, folder))
            for line in plan.notes:
                say(line)
            return run_opening.start(
                plan,
                no_jobs(name).text,
                folder.runs,
                progress(),
                occupancy=occupancy,
                signals=signals,
                source=queue,
            )


def _run_of(folder: QueueFolder, left: list[JobRow]) -> RunFolder | None:
    """Run that the jobs which are left belong to; None if there are none, or its folder is gone."""
    path = folder.runs / left[-1].run if left else None
    return RunFolder.open(path) if path is not None and path.is_dir() else None


def _reopened(
    folder: QueueFolder,
    run: RunFolder,
    store: JobStore,
    plan_jobs: PlanJobs,
    progress: ProgressDisplay,
    admission: DeviceAdmission,
    say: Callable[[str], None],
    signals: StopSignals,
) -> FinishedRun:
    planned_on: list[tuple[DeviceInfo, ...]] = []

    def planner(loaded: LoadedJobs, beside: Collection[str]) -> Plan:
        return plan_jobs(loaded, planned_on[0], beside)

    def planned(devices: tuple[DeviceInfo, ...]) -> Plan:
        planned_on.append(devices)
        plan = leftover_jobs(folder.name, store, planner)
        submitted_jobs.append(run.submitted, described(plan))
        return plan

    queue = LiveQueue(folder.name, store, planner, partial(served, folder))
    return run_opening.reopen(run, planned, progress, queue, admission, say, signals)
