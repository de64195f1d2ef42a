"""A run from its plan to its summary: the folder, the driver, the result; and going on with a run that was cut off."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ecoshare
from ecoshare.advise.advice import Goal
from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError
from ecoshare.hardware import devices, nvml
from ecoshare.hardware.restore import Restored
from ecoshare.jobs.load import load
from ecoshare.jobs.mask import masked
from ecoshare.lane import futex
from ecoshare.measure import model
from ecoshare.measure.profile import Profile
from ecoshare.measure.profiles import ProfileStore
from ecoshare.measure.tuned import TunedStore
from ecoshare.report.progress import Progress
from ecoshare.report.reading import read
from ecoshare.report.rundata import RunData
from ecoshare.runtime import log, reaping
from ecoshare.runtime import plan as planning
from ecoshare.runtime.contexts import context_sharing
from ecoshare.runtime.driver import Driver
from ecoshare.runtime.folder import RunFolder, read_json, unwritable, write_json, write_text
from ecoshare.runtime.host import CommandLine, Host
from ecoshare.runtime.leftover import leftover
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.searching import Searching, check_meter
from ecoshare.runtime.settings import Settings, claim, leftovers, not_restored
from ecoshare.runtime.window import DEFAULT_LIMITS, Limits

_SHARED_PREFIX = "ecoshare-"
"""Of the folder in memory that holds a run's lane tables and sockets."""


@dataclass(frozen=True, slots=True)
class Result:
    """A run that is over.

    Attributes:
        data: What is known of it; its summary is in the folder's `summary.json`.
        ran: Whether there was anything to run.
        made: Profiles that it made, by class.
        notes: What the user should know, a line each.
        unrestored: Settings that could not be put back.
    """

    folder: RunFolder
    data: RunData
    ran: bool
    made: dict[str, Profile] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unrestored: tuple[Restored, ...] = ()


def start(
    plan: Plan,
    job_text: str,
    runs: Path,
    progress: Progress,
    limits: Limits = DEFAULT_LIMITS,
    only_profile: bool = False,
    searching: Searching | None = None,
    host: Host | None = None,
) -> Result:
    """Run a plan in a new run folder under `runs`.

    Args:
        job_text: The job file that the plan was made from; a copy without the values of `env:` is kept.
        limits: Of the windows in which jobs are measured.
        only_profile: Stop the run when a window is over.
        searching: For the best setting of the packing, where the plan is for that alone; the run stops then.
        host: The process that this runs in, where that is not the command line's.

    Raises:
        UnfitEnvironment: This machine cannot run it, or ceased to.
    """
    _check_machine()
    folder = RunFolder.create(runs, plan.job_file.stem)
    events = _open_log(folder)
    assert events is not None, "a folder just made has no other writer"
    environment = _describe(plan)
    write_json(folder.environment, environment)
    write_text(folder.job_file, masked(job_text))
    write_json(folder.plan, plan.as_dict())
    _keep_profiles(plan, folder)
    return _drive(plan, folder, events, environment, progress, limits, only_profile, searching, host)


def resume(run: Path, progress: Progress, control: bool = True, search: bool = True) -> Result:
    """Run what a run that was cut off has left: every job whose end is not recorded.

    Args:
        control: Whether clocks and power may be set, where that run might set them.
        search: Whether settings may be searched, where that run might search them.

    Raises:
        UsageError: The job file is not what it was, or the run is still going on.
        UnfitEnvironment: As `start`.
    """
    _check_machine()
    folder = RunFolder.open(run)
    before = read_json(folder.plan)
    if before.get("only_tune", before.get("goal") is not None):
        raise UsageError(f"{run} was a search, which is not gone on with", "start it again with `ecoshare tune`")
    if any(sweep.get("called") for sweep in before.get("sweeps", ())):
        raise UsageError(f"{run} was a study's, which goes on where it is", "call optimize() with the same study again")
    environment = read_json(folder.environment)
    job_file = Path(before["job_file"])
    loaded = load(job_file)
    if loaded.digest != before["digest"]:
        raise UsageError(
            f"{job_file} has changed since {run} began",
            "a changed file is another run: start it without --resume",
        )
    device = devices.find(before["device"]["name"])
    if device.uuid != before["device"]["uuid"]:
        raise UsageError(
            f"{run} ran on {before['device']['uuid']}, and {device.name} is {device.uuid} now",
            "set CUDA_VISIBLE_DEVICES as it was",
        )
    plan = planning.make(
        loaded,
        device,
        control=control and before.get("control", False),
        objective=before["objective"],
        policy=before["policy"],
        options=[f"{name}={value!r}" for name, value in before.get("options", {}).items()],
        lanes=before["lanes"],
        places=before["places_per_lane"],
        memory_bytes=before["memory_bytes"],
        store=ProfileStore(Path(before["profiles"])) if before["profiles"] is not None else None,
        goal=Goal(**before["goal"]) if search and before.get("goal") is not None else None,
    )
    events = _open_log(folder)
    if events is None:
        raise UsageError(f"{run} is still going on", "stop it first, with Ctrl-C where it runs")
    if alive := reaping.end_all(environment["token"]):
        raise UnfitEnvironment(f"processes of the dead run cannot be ended: {alive}")
    if Path(shared := environment.get("shared", "")).name.startswith(_SHARED_PREFIX):
        shutil.rmtree(shared, ignore_errors=True)
    left = leftover(plan, folder)
    if left is None:
        events.close()
        return _conclude(folder, ran=False)
    # Scripts may have been changed or measured since: the jobs that are left run as they are now.
    write_json(folder.plan, plan.as_dict())
    _keep_profiles(plan, folder)
    # A token of its own: what may still be sweeping up after the dead session must not find this one's processes.
    environment["token"] = secrets.token_hex(8)
    return _drive(left, folder, events, environment, progress)


def _keep_profiles(plan: Plan, folder: RunFolder) -> None:
    """Copies of the profiles that the run goes by, so that its account can be made again."""
    own = ProfileStore(folder.profiles)
    for profile in plan.known.values():
        own.save(profile)


def _drive(
    plan: Plan,
    folder: RunFolder,
    events: log.EventLog,
    environment: dict[str, Any],
    progress: Progress,
    limits: Limits = DEFAULT_LIMITS,
    only_profile: bool = False,
    searching: Searching | None = None,
    host: Host | None = None,
) -> Result:
    host = host or CommandLine()
    with contextlib.ExitStack() as undo:
        undo.callback(events.close)
        undo.callback(progress.close)
        shared = Path(tempfile.mkdtemp(prefix=_SHARED_PREFIX, dir=_memory_folder()))
        undo.callback(shutil.rmtree, shared, ignore_errors=True)
        sharing = context_sharing(plan, shared, environment["token"])
        undo.callback(sharing.end)
        environment = {**environment, "mps": sharing.evidence, "shared": str(shared)}
        write_json(folder.environment, environment)
        plan = replace(plan, mps=sharing.daemon is not None, environment={**plan.environment, **sharing.environment})
        profiler = Profiler(
            plan.device,
            folder,
            ProfileStore(plan.profiles or folder.profiles),
            limits,
            only_profile,
            set(plan.seen),
        )
        if searching is None:
            plan = _as_found(plan, profiler.notes)
            plan, settings, searching = _claimed(plan, profiler.notes)
        else:
            settings = searching.settings
        if settings is not None:
            undo.callback(settings.restore)  # where the run does not come to do it
        driver = Driver(
            plan=plan,
            folder=folder,
            log=events,
            shared=shared,
            token=environment["token"],
            began_s=time.monotonic() - (time.time() - environment["opened_unix_s"]),
            progress=progress,
            after_jobs=sharing.end,
            profiler=profiler,
            power=_power(environment),
            settings=settings,
            adviser=searching.adviser(profiler) if searching is not None else None,
            host=host,
        )
        try:
            asyncio.run(driver.run())
        except EcoshareError as error:
            if settings is not None and settings.unrestored:
                raise not_restored(settings.unrestored, str(error)) from error
            raise
        host.over()
    if driver.ready is not None:
        versions = {"torch": driver.ready.torch, "intra_op_threads": driver.ready.threads}
        write_json(folder.environment, {**environment, **versions, "torch_load_s": driver.ready.load_s})
    notes = (
        *profiler.notes,
        *(settings.notes if settings is not None else ()),
        *(searching.notes if searching is not None else ()),
    )
    return replace(
        _conclude(folder, ran=True),
        made=profiler.made,
        notes=notes,
        unrestored=tuple(settings.unrestored) if settings is not None else (),
    )


def _as_found(plan: Plan, notes: list[str]) -> Plan:
    """The plan for the device as it is: what is measured at settings that somebody has left must not be kept."""
    words, is_so = leftovers(plan.device, plan.control)
    notes += words
    return plan if is_so else replace(plan, profiles=None)


def _claimed(plan: Plan, notes: list[str]) -> tuple[Plan, Settings | None, Searching | None]:
    """The device, where its settings may be set, with searches where joules are measured; else why not, once."""
    if plan.goal is not None:
        try:
            check_meter(plan.device)
        except UnfitEnvironment as error:
            notes.append(f"no setting is searched: {error}" + (f" ({error.hint})" if error.hint else ""))
            plan = replace(plan, goal=None)
    if plan.goal is None and not any(each.setting for each in plan.tuned):
        return plan, None, None
    try:
        settings = claim(plan.device, exact=plan.goal is not None)
    except UnfitEnvironment as error:
        notes.append(f"clocks and power stay as they are: {error}" + (f" ({error.hint})" if error.hint else ""))
        return replace(plan, tuned=(), goal=None), None, None
    if plan.goal is None or plan.profiles is None:
        return replace(plan, goal=None), settings, None
    return plan, settings, Searching(settings, plan, plan.goal, TunedStore(plan.profiles), keep=True)


def _conclude(folder: RunFolder, ran: bool) -> Result:
    data = read(folder)
    write_json(folder.summary, data.summary)
    return Result(folder, data, ran)


def _check_machine() -> None:
    if not futex.supported():
        raise UnfitEnvironment(
            f"sharing needs Linux on x86-64 or arm64; this is {platform.system()} on {platform.machine()}"
        )


def _describe(plan: Plan) -> dict[str, Any]:
    """What of the machine matters to the run; `token` marks its processes."""
    power = model.processors(plan.device.cores) if plan.device.kind == "cpu" else _gpu_power(plan)
    return {
        "schema_version": 1,
        "ecoshare": ecoshare.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "opened_unix_s": time.time(),
        "token": secrets.token_hex(8),
        "device": plan.device.as_dict(),
        "power_model": None
        if power is None
        else {
            "idle_w": power.idle_w,
            "busy_w": power.busy_w,
            "full_load": power.full_load,
            "source": power.source,
        },
    }


def _gpu_power(plan: Plan) -> model.PowerModel | None:
    idle_w = nvml.power_w(str(plan.device.uuid))
    if idle_w is None or plan.device.power_limit_w is None:
        return None
    return model.gpu(idle_w, plan.device.power_limit_w)


def _power(environment: dict[str, Any]) -> model.PowerModel | None:
    fields = environment.get("power_model")
    return model.PowerModel(**fields) if fields else None


def _memory_folder() -> str | None:
    """Where files are memory: shared tables must not cause writes to a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _open_log(folder: RunFolder) -> log.EventLog | None:
    """The run's log, to write to; None where another controller writes it."""
    try:
        return log.EventLog(folder.events)
    except BlockingIOError:
        return None
    except OSError as error:
        raise unwritable(folder.events, error) from error
