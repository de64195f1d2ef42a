"""A run from its opened folder to its summary: claims and clean-up around the driver, and the result."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.devices.control.restore import Restored
from ecoshare.errors import EcoshareError
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_data import RunData, read
from ecoshare.record.run_folder import RunFolder, write_json
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime.driver import Driver, JobSource
from ecoshare.runtime.measuring.device_claim import not_restored
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.profiling_window import DEFAULT_LIMITS, Limits
from ecoshare.runtime.nodes.held_machines import HeldMachines
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.on_end import run_at_end_of_run
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.run import Run

_MADE_AGAIN = (
    "the folder of the run was removed or renamed while the run went on: it was made again, without what jobs had "
    "printed until then"
)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is over.

    Attributes:
        folder: The run folder.
        data: Data of the run. The summary is also in `summary.json` in the run folder.
        ran: Whether there was anything to run.
        made: Profiles that the run made, by class.
        notes: Notes for the user, one line each.
        unrestored: Knobs that could not be restored.
        as_found: Whether the devices were without settings of another run, so that times of this run may be kept.
        submitted: Jobs that were submitted while the run went on.
        waited: Whether a run that only measures was stopped, because its programs waited and did nothing.
    """

    folder: RunFolder
    data: RunData
    ran: bool
    made: dict[str, Profile] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unrestored: tuple[Restored, ...] = ()
    as_found: bool = True
    waited: bool = False
    submitted: tuple[PlannedJob, ...] = ()


def conduct(
    plan: Plan,
    folder: RunFolder,
    events: EventLog,
    environment: dict[str, Any],
    progress: ProgressDisplay,
    host: RunHost,
    machines: HeldMachines,
    limits: Limits | None = None,
    only_profile: bool = False,
    reached_s: float = 0.0,
    source: JobSource | None = None,
) -> FinishedRun:
    """Run a plan to its end.

    Args:
        plan: The plan to run.
        folder: The run folder, with the job file and the plan in it.
        events: Event log of the run. It is closed at the end.
        environment: Facts about the machine. The entry `token` marks the processes of the run.
        progress: Display that gets the progress of the run.
        host: The process that this runs in.
        machines: The machines of the run.
        limits: Limits on the length of profiling windows; None for the default.
        only_profile: Whether the run stops when a window is over.
        reached_s: Last moment of the earlier session, as time (s) since the run was first opened. Time continues from
            there if the clock was set back since then.
        source: Source of more jobs, if the run stays open; otherwise None.

    Raises:
        UnfitEnvironment: This machine can no longer run the plan.
        NotRestored: The run failed, and knobs of the device could not be restored.
    """
    with contextlib.ExitStack() as undo:
        undo.callback(events.close)  # before the log is read: an open log means a run in progress
        undo.callback(progress.close)
        profiler = Profiler(
            folder,
            ProfileStore(plan.profiles or folder.profiles),
            limits or DEFAULT_LIMITS,
            only_profile,
            set(plan.colocations),
        )
        run = Run(plan, folder, events, environment, host, profiler, stays_open=source is not None, reached_s=reached_s)
        own = set(run.jobs)
        opened = undo.enter_context(machines.open_node(run))
        run.plan, run.searches = opened.plan, opened.searches
        run.environment.update(opened.environment)
        write_json(folder.environment, run.environment)
        events.when_gone(partial(_make_again, folder, folder.documents(), profiler.notes))
        run.node = opened.make(run)
        try:
            host.clock.run(Driver(run, progress, source).drive())
        except EcoshareError as error:
            if opened.claims.unrestored:
                raise not_restored(opened.claims.unrestored, str(error)) from error
            raise
        host.over()
    if (ready := run.node.ready) is not None:
        versions = {"torch": ready.torch, "intra_op_threads": ready.threads}
        write_json(folder.environment, {**run.environment, **versions, "torch_load_s": ready.load_s})
    result = conclude(folder, ran=True)
    if profiler.doubt(result.data.summary.jobs):
        result = conclude(folder, ran=True)  # the summary names doubts of profiles
    notes = (*profiler.notes, *opened.claims.notes, *opened.searches.notes)
    if plan.on_end and not run.only_measures:
        told = run_at_end_of_run(plan.on_end, result.data.summary.state, folder, plan.job_file.absolute().parent)
        notes = (*notes, told) if told else notes
    return replace(
        result,
        made=profiler.made,
        notes=notes,
        unrestored=tuple(opened.claims.unrestored),
        as_found=run.plan.profiles is not None,
        submitted=tuple(job for name, job in run.jobs.items() if name not in own and not job.spec.sweep),
        waited=run.node.waited,
    )


def _make_again(folder: RunFolder, documents: dict[Path, bytes], notes: list[str]) -> None:
    """Make the run folder again after it was removed or renamed, perhaps by a clean-up script. The run continues."""
    folder.make_again(documents)
    if _MADE_AGAIN not in notes:
        notes.append(_MADE_AGAIN)


def conclude(folder: RunFolder, ran: bool) -> FinishedRun:
    """Write the summary of a run that is over."""
    data = read(folder)
    write_json(folder.summary, data.summary.as_dict())
    return FinishedRun(folder, data, ran)
