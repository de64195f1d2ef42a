"""Opens a run: its folder, its log and the server of its lanes. Also resumes an interrupted run.

The server loads torch in its own process, which takes a second or two. So a new run starts the server early, and
imports the modules that conduct the run meanwhile.
"""

from __future__ import annotations

import contextlib
import platform
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

import ecoshare
from ecoshare.base.clock import REAL, Clock
from ecoshare.core.events import RunOpened
from ecoshare.devices import meter
from ecoshare.devices.occupancy import DeviceAdmission
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.load import MASK, LoadedJobs, load, masked
from ecoshare.knowledge.calibration_store import CalibrationStore
from ecoshare.knowledge.gang_time_store import GangTimeStore
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import TuningStore
from ecoshare.lane.tables import shared_memory
from ecoshare.record import event_log, run_documents
from ecoshare.record.plan_document import PlanDocument
from ecoshare.record.run_folder import RunFolder, unwritable, write_json, write_text
from ecoshare.run_options import Control, RunOptions, less_control
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.held_machines import HeldMachines, HoldMachines, ThisMachine, this_machine
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.plan_checks import write_arrivals
from ecoshare.runtime.planning.planned_limits import left_for_jobs
from ecoshare.runtime.planning.resume import found_again, names_again
from ecoshare.runtime.signals import CommandSignals, StopSignals

if TYPE_CHECKING:
    from ecoshare.base.device import DeviceInfo
    from ecoshare.record.run_history import RunHistory
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.driver import JobSource
    from ecoshare.runtime.measuring.profiling_window import Limits
    from ecoshare.runtime.run_lifecycle import FinishedRun

HERE_ALONE: HoldMachines = partial(this_machine, admission=DeviceAdmission.REFUSE, say=lambda _words: None)
"""Holds devices of this machine that no other run uses."""


def start(
    plan: Plan,
    job_text: str,
    runs: Path,
    progress: ProgressDisplay,
    limits: Limits | None = None,
    only_profile: bool = False,
    machines: HeldMachines | None = None,
    host: RunHost | None = None,
    signals: StopSignals | None = None,
    source: JobSource | None = None,
    name: str | None = None,
) -> FinishedRun:
    """Run a plan in a new run folder under `runs`.

    Args:
        plan: The plan to run.
        job_text: Text of the job file that the plan was made from. A copy without the values of `env:` is stored.
        runs: Folder that gets the run folder.
        progress: Display that gets the progress of the run.
        limits: Limits on the length of profiling windows; None for the default.
        only_profile: Whether the run stops when a window is over.
        machines: The machines of the run; None for this machine, if no other run can use its devices.
        host: The process that this runs in; None for that of the machines.
        signals: Signals of this process; None for those of a command.
        source: Source of more jobs, if the run stays open; otherwise None.
        name: Name of the run; None for that of its job file.

    Raises:
        UnfitEnvironment: This machine cannot run the plan, or can no longer run it.
    """
    _check_machine()
    folder = RunFolder.create(runs, name or plan.job_file.stem)
    machines = machines or ThisMachine()
    machines.tell(folder.path)
    events = _open_log(folder)
    assert events is not None, "a folder just made has no other writer"
    environment = _describe(plan, machines, REAL if host is None else host.clock)
    write_json(folder.environment, environment)
    with contextlib.ExitStack() as undo:
        undo.callback(events.close)
        if host is None:
            own = machines.host(environment["token"], folder.supervisor_log, signals or CommandSignals())
            host = undo.enter_context(own)
        write_text(folder.job_file, masked(job_text))
        write_json(folder.plan, plan.as_dict())
        _keep_profiles(plan, folder)
        write_arrivals(plan.jobs, folder)

        from ecoshare.runtime.run_lifecycle import conduct

        finished = conduct(
            plan, folder, events, environment, progress, host, machines, limits, only_profile, source=source
        )
        return _taught(plan, finished, machines)


def resume(
    run: Path,
    progress: ProgressDisplay,
    control: Control = "auto",
    hold: HoldMachines = HERE_ALONE,
    signals: StopSignals | None = None,
) -> FinishedRun:
    """Run the rest of an interrupted run: every job without a recorded end.

    Args:
        run: The run folder.
        progress: Display that gets the progress of the run.
        control: Most control of clocks and power; that of the interrupted run may be less.
        hold: Holds the machines of the run.
        signals: Signals of the process; None for those of a command.

    Raises:
        UsageError: The run cannot be resumed, its job file has changed, a device is another one now, or it is still in
            progress.
        UnfitEnvironment: This machine cannot run the plan, or can no longer run it.
    """
    _check_machine()
    folder = RunFolder.open(run)
    folder.check_own()
    before, loaded = _resumable(run, folder)
    options = _options(folder.plan, before)
    options = replace(options, control=less_control(control, options.control))
    events = _open_log(folder)
    if events is None:
        raise UsageError(f"{run} is still going on", "stop it first, with Ctrl-C where it runs")
    from ecoshare.record.run_history import RunHistory

    history = RunHistory(event_log.read(folder.events))
    find = partial(found_again, run, before.devices, history.failures)
    with contextlib.closing(events), hold(find, names_again(before.devices)) as machines:
        machines.tell(folder.path)
        _check_models(run, before.devices, machines.devices)
        plan = Plan.of(loaded, machines, _with_memory(options, before.devices, machines))
        return _go_on(plan, before.devices, folder, history, events, progress, signals, machines)


def reopen(
    folder: RunFolder,
    planned: Callable[[HeldMachines], Plan],
    progress: ProgressDisplay,
    source: JobSource,
    hold: HoldMachines = HERE_ALONE,
    signals: StopSignals | None = None,
) -> FinishedRun:
    """Go on with a run of a queue.

    Args:
        folder: The run folder.
        planned: Function that plans the jobs of the queue that have not ended on machines.
        progress: Display that gets the progress of the run.
        source: Source of more jobs.
        hold: Holds the machines of the run.
        signals: Signals of the process; None for those of a command.

    Raises:
        UsageError: A device is another one now, or the run is still in progress.
        UnfitEnvironment: This machine cannot run the plan, or can no longer run it.
    """
    _check_machine()
    folder.check_own()
    before = run_documents.read_plan(folder.plan, with_submitted=False)  # only its devices are needed
    events = _open_log(folder)
    if events is None:
        raise UsageError(f"{folder.path} is still going on", "stop it first, with Ctrl-C where it runs")
    from ecoshare.record.run_history import RunHistory

    history = RunHistory(event_log.read(folder.events, last=True))  # jobs that ended earlier are in the store
    openings = [each.segment for each in history.entries if isinstance(each, RunOpened)]
    if any(each is not None and each.sweeps for each in openings):
        history = RunHistory(event_log.read(folder.events))  # trials that ended earlier are not
    find = partial(found_again, folder.path, before.devices, history.failures)
    with contextlib.closing(events), hold(find, names_again(before.devices)) as machines:
        machines.tell(folder.path)
        _check_models(folder.path, before.devices, machines.devices)
        plan = planned(machines)
        return _go_on(plan, before.devices, folder, history, events, progress, signals, machines, source)


def _options(path: Path, plan: PlanDocument) -> RunOptions:
    """Options of an interrupted run, from its plan.

    Raises:
        UsageError: An older ecoshare has made the plan, or a newer one with other options, or a value is damaged.
    """
    try:
        options = RunOptions(**plan.run_options) if plan.run_options is not None else None
    except TypeError:
        options = None
    if options is None:
        raise UsageError(f"{path}: another version of ecoshare began this run", "run its job file anew")
    run_documents.checked(path, TypeAdapter(RunOptions), plan.run_options)
    return options


def _with_memory(options: RunOptions, before: Sequence[dict[str, Any]], machines: HeldMachines) -> RunOptions:
    """Options with no more memory for each device than it had before, and than is left for jobs now.

    Args:
        options: Options of the run.
        before: Devices of the run before, with the memory that jobs had.
        machines: Machines of the run now.
    """
    host_bytes = options.host_bytes
    left = left_for_jobs(host_bytes, machines.devices, None, machines.parking_hosts() if host_bytes else {})
    now_bytes = (min if host_bytes else max)(each.memory_bytes for each in left)
    return replace(options, memory=min(max(each["memory_bytes"] for each in before), now_bytes))


def _check_models(run: Path, before: Sequence[dict[str, Any]], devices: Sequence[DeviceInfo]) -> None:
    """Check that devices are of the model of those that a run had, since profiles and iteration counts hold for it.

    Raises:
        UsageError: They are of another model.
    """
    had = before[0]["model"]
    if (other := next((each for each in devices if each.model != had), None)) is not None:
        raise UsageError(f"{run} ran on {had}, and {other.name} is {other.model}", "start it again")


def _resumable(run: Path, folder: RunFolder) -> tuple[PlanDocument, LoadedJobs]:
    """Plan and job file of a run that can be resumed.

    Raises:
        UsageError: The run was a search or a study, or its job file has changed.
    """
    before = run_documents.read_plan(folder.plan)
    if before.only_tune or ("only_tune" not in before.model_fields_set and before.goal is not None):
        raise UsageError(f"{run} was a search, which is not gone on with", "start it again with `ecoshare tune`")
    if queue := before.queue:
        raise UsageError(f"{run} is the run of a queue", f"`ecoshare up --resume --name {queue}` goes on with it")
    if any(sweep.called for sweep in before.sweeps):
        raise UsageError(f"{run} was a study's, which goes on where it is", "call optimize() with the same study again")
    made = before.made_file
    job_file = folder.job_file if made else Path(before.job_file)
    # Relative paths of a mapping start at the folder that its run was started in.
    loaded = load(job_file, Path(before.job_file).parent if made else None)
    if loaded.digest != before.digest:
        if made and MASK in loaded.text:
            raise UsageError(
                f"{run} has no values of `env:` to go on with: its jobs were given as a value, not as a file",
                "write the jobs to a file: a run of a file reads it again",
            )
        raise UsageError(
            f"{job_file} has changed since {run} began",
            "a changed file is another run: start it without --resume",
        )
    return before, replace(loaded, path=Path(before.job_file), made=made)


def _go_on(
    plan: Plan,
    devices: Sequence[dict[str, Any]],
    folder: RunFolder,
    history: RunHistory,
    events: event_log.EventLog,
    progress: ProgressDisplay,
    signals: StopSignals | None,
    machines: HeldMachines,
    source: JobSource | None = None,
) -> FinishedRun:
    """End the processes that the dead session has left, and run the jobs without a recorded end.

    Args:
        plan: Plan of the whole run on the devices that work.
        devices: All devices of the run as its plan has them, failed ones included.
        folder: The run folder.
        history: History of the run so far.
        events: Event log of the run.
        progress: Display that gets the progress of the run.
        signals: See `resume`.
        machines: The machines of the run.
        source: Source of more jobs, if the run stays open; otherwise None.
    """
    from ecoshare.runtime.planning.resume import leftover, reached_s
    from ecoshare.runtime.run_lifecycle import conclude, conduct

    environment = run_documents.read_environment(folder.environment)
    if alive := cleanup.end_all(environment["token"]):
        raise UnfitEnvironment(f"processes of the dead run cannot be ended: {alive}")
    left = leftover(plan, folder, history)
    if source is not None:
        source.resumed(left)
    elif not left.everything:
        events.close()  # before the log is read: an open log means a run in progress
        return _taught(plan, conclude(folder, ran=False), machines)
    # Scripts may have been changed or measured since then. The jobs that are left run as they are now.
    now = [each.as_dict() for each in plan.devices]
    described = plan if source is None else replace(plan, jobs=(), sweeps=())  # the others are in `submitted.jsonl`
    written = described.document().model_copy(update={"devices": run_documents.with_devices(devices, now)})
    write_json(folder.plan, written.as_dict())
    _keep_profiles(plan, folder)
    write_arrivals(left.jobs, folder)  # the first session may have died before it wrote them
    # A new token: the guard of the dead session may still clean up, and must not find the processes of this session.
    environment["token"] = secrets.token_hex(8)
    with machines.host(environment["token"], folder.supervisor_log, signals or CommandSignals()) as host:
        reached = reached_s(folder, history)
        finished = conduct(
            left, folder, events, environment, progress, host, machines, reached_s=reached, source=source
        )
        return _taught(plan, finished, machines)


def _taught(plan: Plan, finished: FinishedRun, machines: HeldMachines) -> FinishedRun:
    """The run, after later plans can learn from it: iteration counts, times on each device, times under power limits.

    Args:
        plan: The plan of the whole run: jobs that completed in an earlier session count, too.
        finished: The run.
        machines: The machines of the run. Times beside another run are not kept.
    """
    if plan.profiles is None:
        return finished
    # They load what reads a whole run. A new run would wait for it before its server starts.
    from ecoshare.runtime.planning.learning import teach_gangs, teach_iterations, teach_limits, teach_speeds

    folder, data, store = finished.folder, finished.data, ProfileStore(plan.profiles)
    notes = teach_iterations((*plan.jobs, *finished.submitted), data.history.jobs, folder.path.name, store)
    if finished.as_found and not machines.is_shared:
        notes += teach_speeds(plan.devices, folder, data, finished.made, CalibrationStore(store.folder))
        notes += teach_gangs(folder, data, GangTimeStore(store.folder))
        if plan.budget.sets_limits:
            notes += teach_limits(plan.devices, data.history, TuningStore(store.folder))
    return replace(finished, notes=(*finished.notes, *notes))


def _keep_profiles(plan: Plan, folder: RunFolder) -> None:
    """Copy the profiles that the run uses into its folder, so that its energy account can be made again."""
    own = ProfileStore(folder.profiles)
    for profile in plan.known.values():
        own.save(profile)


def _check_machine() -> None:
    if not shared_memory.has_futex():
        raise UnfitEnvironment(
            f"sharing needs Linux on x86-64 or arm64; this is {platform.system()} on {platform.machine()}"
        )


def _describe(plan: Plan, machines: HeldMachines, clock: Clock) -> dict[str, Any]:
    """Facts about the machine that matter to the run. The entry `token` marks the processes of the run."""
    return {
        "schema_version": 1,
        "ecoshare": ecoshare.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "opened_unix_s": clock.unix_s(),
        "token": secrets.token_hex(8),
        "devices": [each.as_dict() for each in plan.devices],
        "power_models": meter.models_as_json(machines.power_models(plan.devices)),
    }


def _open_log(folder: RunFolder) -> event_log.EventLog | None:
    """Event log of the run, open for writing; None if another controller writes it."""
    try:
        return event_log.EventLog(folder.events)
    except BlockingIOError:
        return None
    except OSError as error:
        raise unwritable(folder.events, error) from error
