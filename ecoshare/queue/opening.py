"""Opens a queue, or goes on with one that was stopped or killed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from ecoshare.base.plural import counted
from ecoshare.errors import UsageError
from ecoshare.jobs.load import LoadedJobs
from ecoshare.queue.http_server import served
from ecoshare.queue.job_store import JobRow, JobStore
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.queue.submission_plan import leftover_jobs, no_jobs
from ecoshare.queue.tcp_entry import ListenAddress, TcpEntry, is_in_journal, tcp_entry
from ecoshare.record import run_documents
from ecoshare.record.run_folder import RunFolder, write_json
from ecoshare.runtime import run_opening
from ecoshare.runtime.nodes.held_machines import HoldMachines
from ecoshare.runtime.planning.planned_limits import PlannedMachines

if TYPE_CHECKING:
    from ecoshare.base.device import DeviceInfo
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.planning.plan import Plan
    from ecoshare.runtime.run_lifecycle import FinishedRun
    from ecoshare.runtime.signals import StopSignals

_STDERR = 2

PlanJobs = Callable[[LoadedJobs, PlannedMachines, Collection[str]], "Plan"]
"""Plans jobs on machines, beside jobs of other classes."""


def open_queue(
    name: str,
    plan_jobs: PlanJobs,
    find: Callable[[], tuple[DeviceInfo, ...]],
    names: str | None,
    progress: Callable[[], ProgressDisplay],
    resume: bool,
    options: Mapping[str, Any],
    keep_s: float | None,
    listen: ListenAddress | None,
    hold: HoldMachines,
    say: Callable[[str], None],
    signals: StopSignals,
) -> FinishedRun:
    """Serve a queue until it is ended.

    Args:
        name: Name of the queue.
        plan_jobs: Plans jobs as the user asked for.
        find: Finds the devices of a queue that begins; one that goes on keeps its own.
        names: Names of its devices on each of several machines; see `find_all`.
        progress: Makes the display that gets the progress of the run.
        resume: Whether jobs that an earlier session has left go on. Otherwise there must be none.
        options: Options of the queue, which its next session goes on with.
        keep_s: Time (s) for which the data of a job are kept after its end; None for ever.
        listen: Address over TCP, beside the socket; None for none.
        hold: Holds the machines of the queue.
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
                f"`ecoshare up --resume{folder.option}` goes on with them; "
                f"`ecoshare down --clear{folder.option}` forgets them",
            )
        with tcp_entry(folder, listen) as entry:
            if entry is not None:
                say(page_note(entry))
            if (before := _run_of(folder, left)) is not None:
                return _reopened(folder, entry, before, store, plan_jobs, progress(), options, keep_s, hold, signals)
            with hold(find, names) as machines:

                def planner(loaded: LoadedJobs, beside: Collection[str]) -> Plan:
                    return plan_jobs(loaded, machines, beside)

                plan = leftover_jobs(name, store, planner)
                queue = LiveQueue(name, store, planner, partial(served, folder, entry), keep_s)
                write_json(folder.options, options)
                for line in plan.notes:
                    say(line)
                return run_opening.start(
                    plan,
                    no_jobs(name).text,
                    folder.runs,
                    progress(),
                    machines=machines,
                    signals=signals,
                    source=queue,
                )


def _run_of(folder: QueueFolder, left: list[JobRow]) -> RunFolder | None:
    """Run that the jobs which are left belong to; None if there are none, or its folder is gone."""
    path = folder.runs / left[-1].run if left else None
    return RunFolder.open(path) if path is not None and path.is_dir() else None


def _reopened(
    folder: QueueFolder,
    entry: TcpEntry | None,
    run: RunFolder,
    store: JobStore,
    plan_jobs: PlanJobs,
    progress: ProgressDisplay,
    options: Mapping[str, Any],
    keep_s: float | None,
    hold: HoldMachines,
    signals: StopSignals,
) -> FinishedRun:
    planned_on: list[PlannedMachines] = []

    def planner(loaded: LoadedJobs, beside: Collection[str]) -> Plan:
        return plan_jobs(loaded, planned_on[0], beside)

    def planned(machines: PlannedMachines) -> Plan:
        planned_on.append(machines)
        plan = leftover_jobs(folder.name, store, planner)
        run_documents.append(run.submitted, plan.described())
        write_json(folder.options, options)
        return plan

    queue = LiveQueue(folder.name, store, planner, partial(served, folder, entry), keep_s)
    return run_opening.reopen(run, planned, progress, queue, hold, signals)


def page_note(entry: TcpEntry) -> str:
    """Note with the address of the page. The journal of systemd, which other users may read, gets no token."""
    if is_in_journal(_STDERR):
        return f"the page is at {entry.address}; `ecoshare page` prints it with the token"
    return f"the page is {entry.page}"
