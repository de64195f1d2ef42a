"""A run from its opened folder to its summary: claims and clean-up around the driver, and the result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.devices import registry
from ecoshare.devices.power_model import PowerModel
from ecoshare.devices.restore import Restored
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record.event_log import EventLog
from ecoshare.record.reading import read
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder, write_json
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime import shared_folder
from ecoshare.runtime.device_claim import not_restored
from ecoshare.runtime.device_session import ClaimedDevice
from ecoshare.runtime.driver import Driver, RunParts
from ecoshare.runtime.guard_client import Guard
from ecoshare.runtime.on_end import run_at_end_of_run
from ecoshare.runtime.open_run import JobSource
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.profiling_window import DEFAULT_LIMITS, Limits
from ecoshare.runtime.reaping import SPARED, TOKEN
from ecoshare.runtime.run_claims import RunClaims, as_found, claimed
from ecoshare.runtime.run_host import RunHost
from ecoshare.runtime.setting_searches import Searching

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
    limits: Limits | None = None,
    only_profile: bool = False,
    searching: Searching | None = None,
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
        limits: Limits on the length of profiling windows; None for the default.
        only_profile: Whether the run stops when a window is over.
        searching: Search for the best setting of the packing, if the run is for that search only; otherwise None.
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
        last = undo.enter_context(contextlib.ExitStack())  # after the settings are restored
        environment = {**environment, "shared": str(shared_folder.path_of(environment["token"]))}
        write_json(folder.environment, environment)
        profiler = Profiler(
            folder,
            ProfileStore(plan.profiles or folder.profiles),
            limits or DEFAULT_LIMITS,
            only_profile,
            set(plan.colocations),
        )
        shared_folder.clear_dead()  # before a claim restores the limits that a dead run left: its budget may need them
        if searching is None:
            plan, claims = claimed(as_found(plan, profiler.notes), profiler.notes)
        else:
            claims = RunClaims.of(searching)
        undo.callback(claims.restore)  # in case the run does not get to it
        guard = _guard(environment, claims)
        last.callback(guard.dismiss)
        shared = undo.enter_context(shared_folder.made(environment["token"]))
        sharing = registry.vendor(plan.devices[0].vendor).share_contexts(
            plan.devices, plan.lanes, shared, {**os.environ, TOKEN: environment["token"], SPARED: "1"}
        )
        undo.callback(sharing.end)
        environment = {**environment, "mps": sharing.evidence}
        write_json(folder.environment, environment)
        events.when_gone(partial(_make_again, folder, folder.documents(), profiler.notes))
        plan = replace(plan, mps=sharing.is_shared)
        jobs = {job.spec.name: job for job in plan.jobs}
        own = set(jobs)
        powers = environment["power_models"]
        devices = [
            ClaimedDevice(
                each,
                PowerModel(**powers[each.name]) if powers.get(each.name) else None,
                claims.settings.get(each.name),
                claims.adviser(each.name, profiler, jobs),
                partial(plan.idle_w, each),
            )
            for each in plan.devices
        ]
        began_s = time.monotonic() - max(time.time() - environment["opened_unix_s"], reached_s)
        parts = RunParts(
            plan,
            jobs,
            folder,
            events,
            shared,
            environment["token"],
            began_s,
            progress,
            devices,
            sharing,
            profiler,
            guard,
            host,
            source,
        )
        try:
            driver = Driver(parts)
            asyncio.run(driver.run())
        except EcoshareError as error:
            if claims.unrestored:
                raise not_restored(claims.unrestored, str(error)) from error
            raise
        host.over()
    if (ready := driver.supervisor.ready) is not None:
        versions = {"torch": ready.torch, "intra_op_threads": ready.threads}
        write_json(folder.environment, {**environment, **versions, "torch_load_s": ready.load_s})
    result = conclude(folder, ran=True)
    profiler.doubt(result.data.summary.jobs)
    notes = (*profiler.notes, *claims.notes)
    result = conclude(folder, ran=True)
    if plan.on_end and not (plan.only_tune or only_profile):
        told = run_at_end_of_run(plan.on_end, result.data.summary.state, folder, plan.job_file.absolute().parent)
        notes = (*notes, told) if told else notes
    return replace(
        result,
        made=profiler.made,
        notes=notes,
        unrestored=claims.unrestored,
        as_found=plan.profiles is not None,
        submitted=tuple(job for name, job in jobs.items() if name not in own and not job.spec.sweep),
        waited=driver.waiting is not None and driver.waiting.is_over,
    )


def _guard(environment: dict[str, Any], claims: RunClaims) -> Guard:
    try:
        return Guard(environment["token"], Path(environment["shared"]), claims.keys)
    except OSError as error:
        raise UnfitEnvironment(f"the guard of the run cannot be started: {error.strerror or error}") from error


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
