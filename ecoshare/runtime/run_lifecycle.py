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

from ecoshare.devices import power_model, registry
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.meter_check import check_meter
from ecoshare.devices.restore import Restored
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.profiling.tuning_store import TuningStore
from ecoshare.record.event_log import EventLog
from ecoshare.record.reading import read
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder, write_json
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime import shared_folder
from ecoshare.runtime.device_claim import AppliedSettings, claim, leftovers, leftovers_beside, not_restored
from ecoshare.runtime.device_session import ClaimedDevice
from ecoshare.runtime.driver import Driver, RunParts
from ecoshare.runtime.guard_client import Guard
from ecoshare.runtime.on_end import run_at_end_of_run
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.profiling_window import DEFAULT_LIMITS, Limits
from ecoshare.runtime.reaping import SPARED, TOKEN
from ecoshare.runtime.run_host import RunHost
from ecoshare.runtime.setting_searches import Searching
from ecoshare.runtime.told_once import is_news

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
    """

    folder: RunFolder
    data: RunData
    ran: bool
    made: dict[str, Profile] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unrestored: tuple[Restored, ...] = ()


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
            plan.device,
            folder,
            ProfileStore(plan.profiles or folder.profiles),
            limits or DEFAULT_LIMITS,
            only_profile,
            set(plan.colocations),
        )
        if searching is None:
            plan = _as_found(plan, profiler.notes)
            plan, settings, searching = _claimed(plan, profiler.notes)
        else:
            settings = searching.settings
        if settings is not None:
            undo.callback(settings.restore)  # in case the run does not get to it
        guard = _guard(environment, settings)
        last.callback(guard.dismiss)
        shared_folder.clear_dead()
        shared = undo.enter_context(shared_folder.made(environment["token"]))
        sharing = registry.vendor(plan.device.vendor).share_contexts(
            plan.device, plan.lanes, shared, {**os.environ, TOKEN: environment["token"], SPARED: "1"}
        )
        undo.callback(sharing.end)
        environment = {**environment, "mps": sharing.evidence}
        write_json(folder.environment, environment)
        events.when_gone(partial(_make_again, folder, folder.documents(), profiler.notes))
        plan = replace(plan, mps=sharing.is_shared, environment={**plan.environment, **sharing.environment})
        jobs = {job.spec.name: job for job in plan.jobs}
        claimed = ClaimedDevice(
            plan.device,
            sharing,
            _power(environment),
            settings,
            searching.adviser(profiler, jobs) if searching is not None else None,
            plan.idle_w,
        )
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
            (claimed,),
            profiler,
            guard,
            host,
        )
        try:
            driver = Driver(parts)
            asyncio.run(driver.run())
        except EcoshareError as error:
            if settings is not None and settings.unrestored:
                raise not_restored(settings.unrestored, str(error)) from error
            raise
        host.over()
    if (ready := driver.supervisor.ready) is not None:
        versions = {"torch": ready.torch, "intra_op_threads": ready.threads}
        write_json(folder.environment, {**environment, **versions, "torch_load_s": ready.load_s})
    result = conclude(folder, ran=True)
    profiler.doubt(result.data.summary.jobs)
    notes = (
        *profiler.notes,
        *(settings.notes if settings is not None else ()),
        *(searching.notes if searching is not None else ()),
    )
    result = conclude(folder, ran=True)
    if plan.on_end and not (plan.only_tune or only_profile):
        told = run_at_end_of_run(plan.on_end, result.data.summary.state, folder, plan.job_file.absolute().parent)
        notes = (*notes, told) if told else notes
    return replace(
        result,
        made=profiler.made,
        notes=notes,
        unrestored=tuple(settings.unrestored) if settings is not None else (),
    )


def _guard(environment: dict[str, Any], settings: AppliedSettings | None) -> Guard:
    try:
        claimed = settings.control.claimed if settings is not None else ()
        return Guard(environment["token"], Path(environment["shared"]), claimed)
    except OSError as error:
        raise UnfitEnvironment(f"the guard of the run cannot be started: {error.strerror or error}") from error


def _make_again(folder: RunFolder, documents: dict[Path, bytes], notes: list[str]) -> None:
    """Make the run folder again after it was removed or renamed, perhaps by a clean-up script. The run continues."""
    folder.make_again(documents)
    if _MADE_AGAIN not in notes:
        notes.append(_MADE_AGAIN)


def _as_found(plan: Plan, notes: list[str]) -> Plan:
    """Plan for the device as it is. Profiles are not stored if the device has settings of another run."""
    for look in (leftovers, leftovers_beside):
        words, is_so = look(plan.device, plan.control)
        notes += words
        plan = plan if is_so else replace(plan, profiles=None)
    return plan


def _claimed(plan: Plan, notes: list[str]) -> tuple[Plan, AppliedSettings | None, Searching | None]:
    """Claim the device if it may be set, and prepare searches if joules are measured. Notes say why not, once."""
    if plan.goal is not None:
        try:
            check_meter(plan.device)
        except UnfitEnvironment as error:
            reason = f"no setting is searched: {error}"
            if is_news(f"search on {plan.device.uuid or plan.device.name}", reason):
                hint = f"{error.hint}; " if error.hint and "doctor" not in error.hint else ""
                notes.append(f"{reason} ({hint}told once: `ecoshare doctor` tells it again)")
            plan = replace(plan, goal=None)
    if plan.goal is None and not any(each.setting for each in plan.known_settings):
        return plan, None, None
    try:
        searches = plan.goal is not None and plan.profiles is not None
        known = any(CPU_FREQUENCY in dict(each.setting) for each in plan.known_settings)
        settings = claim(plan.device, exact=plan.goal is not None, with_processors=searches or known)
        if settings.apart_for_a_run:
            notes.append(f"{CPU_FREQUENCY} stays as it is: {settings.apart}")
    except UnfitEnvironment as error:
        notes.append(f"clocks and power stay as they are: {error}" + (f" ({error.hint})" if error.hint else ""))
        return replace(plan, known_settings=(), goal=None), None, None
    if plan.goal is None or plan.profiles is None:
        return replace(plan, goal=None), settings, None
    return plan, settings, Searching(settings, plan, plan.goal, TuningStore(plan.profiles), keep=True)


def conclude(folder: RunFolder, ran: bool) -> FinishedRun:
    """Write the summary of a run that is over."""
    data = read(folder)
    write_json(folder.summary, data.summary.as_dict())
    return FinishedRun(folder, data, ran)


def _power(environment: dict[str, Any]) -> power_model.PowerModel | None:
    fields = environment.get("power_model")
    return power_model.PowerModel(**fields) if fields else None
