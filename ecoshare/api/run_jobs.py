"""`run`, `plan` and `resume`: several scripts share a device until all of them have ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ecoshare.api.request_values import Caller
from ecoshare.api.run_result import RunResult
from ecoshare.base.disk import RUNS, AnyPath
from ecoshare.option_fields import options_of, request_class, with_fields
from ecoshare.run_options import Control, MachineOptions, RunOptions, check_control, duration_s

if TYPE_CHECKING:
    from ecoshare.base.device import DeviceInfo
    from ecoshare.jobs.from_values import Jobs
    from ecoshare.jobs.load import LoadedJobs
    from ecoshare.runtime.nodes.held_machines import HoldMachines
    from ecoshare.runtime.planning.plan import Plan
    from ecoshare.runtime.planning.planned_limits import PlannedMachines
    from ecoshare.runtime.signals import StopSignals


class PlanJobs(Protocol):
    """Plans jobs on machines."""

    def __call__(self, loaded: LoadedJobs, machines: PlannedMachines, beside: Collection[str] = ()) -> Plan:
        """Plan of these jobs, which may share the devices with jobs of the classes `beside`."""
        ...


@request_class
class RunRequest(RunOptions, Caller):
    """Request for a run: its options, and these fields. [The table](../commands.md#options-of-run) has the options.

    Attributes:
        jobs: Path of a job file, paths of scripts, or the content of a job file as a mapping. Relative paths in a
            mapping start at the working folder.
        args: Arguments of the scripts; a job file has its own.
        runs: Folder that gets the run folder. If the jobs run on other machines, all of them share it.
        name: Name of the run, which its folder has; None for that of the job file, or of the first script.
    """

    jobs: Jobs
    args: Sequence[str] = ()
    runs: AnyPath = RUNS
    name: str | None = None


@request_class
class ResumeRequest(MachineOptions, Caller):
    """Request to go on with an interrupted run. All other options are as the run was asked for.

    Attributes:
        run: The run folder; `ecoshare-runs/latest` is the newest.
        control: Whether clocks and power may be set, if the interrupted run was allowed to; see `RunRequest`.
    """

    run: AnyPath
    control: Control = "auto"


def run(jobs: Jobs | RunRequest, /, **fields: Any) -> RunResult:
    """Run jobs until all of them have ended. A job that fails is part of the result, see `RunResult.check`.

    The function works in any thread, and beside an event loop. Ctrl-C and SIGTERM stop the jobs, the result is written,
    and the signal is then raised again for the caller's own handler.

    Args:
        jobs: A request, or its `jobs`.
        fields: Other fields of the `RunRequest`.

    Raises:
        UsageError: The fields contradict each other, or name what does not exist.
        InvalidJobFile: The jobs have mistakes; the error lists them, with line and column.
        UnfitEnvironment: This machine cannot run the jobs, or another run uses a device.
        NotRestored: The run failed, and knobs of a device could not be restored.
        KeyboardInterrupt: The user pressed Ctrl-C; `resume` goes on with the run.
    """
    from ecoshare.devices.processor_load import LoadWatch

    watch = LoadWatch.begin()  # watches until the plan is made, so it costs no extra time
    from ecoshare.api.caller_process import drive
    from ecoshare.devices.choice import find_all
    from ecoshare.runtime import run_opening

    request = _request(jobs, fields)
    hold = holder(request, request.note)
    loaded, planned = _planner(request)
    looks = count()

    def find() -> tuple[DeviceInfo, ...]:
        nonlocal watch
        if next(looks):  # another run was waited for, and its load is over
            watch = LoadWatch.begin()
        return find_all(request.device, request.devices)

    with hold(find, request.device) as machines:
        plan = planned(machines)
        if words := watch.words():
            request.note(f"{words}: times and joules of this run are those of a busy machine")

        def start(signals: StopSignals) -> RunResult:
            finished = run_opening.start(
                plan,
                loaded.text,
                Path(request.runs),
                request.progress(),
                machines=machines,
                signals=signals,
                name=request.name,
            )
            return RunResult.of(finished)

        return drive(request.signals, start)


def plan(jobs: Jobs | RunRequest, /, **fields: Any) -> Plan:
    """Plan of a run, which is not started: jobs, device, policy, lanes, memory and notes.

    Args:
        jobs: A request, or its `jobs`.
        fields: Other fields of the `RunRequest`.

    Raises:
        UsageError: See `run`.
        InvalidJobFile: See `run`.
        UnfitEnvironment: This machine cannot run the jobs.
    """
    from ecoshare.devices.choice import find_all
    from ecoshare.runtime.nodes.held_machines import FoundDevices

    request = _request(jobs, fields)
    hold = holder(request, request.note)
    _, planned = _planner(request)
    find = partial(find_all, request.device, request.devices)
    if request.on is None:
        return planned(FoundDevices(find()))
    with hold(find, request.device) as machines:
        return planned(machines)


def resume(run: AnyPath | ResumeRequest, /, **fields: Any) -> RunResult:
    """Run the jobs of an interrupted run that have no recorded end, and return the result of the whole run.

    Args:
        run: A request, or its `run`.
        fields: Other fields of the `ResumeRequest`.

    Raises:
        UsageError: The run cannot be resumed, its job file has changed, a device is another one now, or it is still in
            progress.
        UnfitEnvironment: This machine cannot run the jobs, or another run uses a device.
        NotRestored: See `run`.
        KeyboardInterrupt: See `run`.
    """
    from ecoshare.api.caller_process import drive
    from ecoshare.runtime import run_opening

    request = with_fields(run if isinstance(run, ResumeRequest) else ResumeRequest(run=run), fields)
    check_control(request.control)
    request.check()
    if request.on == "slurm":
        from ecoshare.cluster.slurm_nodes import await_earlier_start

        await_earlier_start(Path(request.run), request.note)
    go_on = partial(run_opening.resume, Path(request.run), control=request.control, hold=holder(request, request.note))
    return drive(request.signals, lambda signals: RunResult.of(go_on(progress=request.progress(), signals=signals)))


def _request(jobs: Jobs | RunRequest, fields: dict[str, Any]) -> RunRequest:
    request = with_fields(jobs if isinstance(jobs, RunRequest) else RunRequest(jobs=jobs), fields)
    request.check()
    return request


def holder(options: MachineOptions, note: Callable[[str], None]) -> HoldMachines:
    """Function that holds the machines that options ask for.

    Args:
        options: The options.
        note: Shows a note to the user.
    """
    from ecoshare.devices.occupancy import DeviceAdmission
    from ecoshare.runtime.nodes.held_machines import this_machine

    admission = DeviceAdmission.of(options.wait, options.share_device, options.exclusive)
    if options.on is None:
        return partial(this_machine, admission=admission, say=note, takes_turns=not options.exclusive)
    from ecoshare.cluster.nodes_request import NodesRequest, check_ray

    asked = NodesRequest(
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        timeout_s=options.node_timeout_s,
        share_device=options.share_device,
        ship=_shipped(options),
        idle_s=duration_s("--release-idle", options.release_idle),
    )
    if options.on == "slurm":
        from ecoshare.cluster.slurm_nodes import on_slurm

        return lambda _find, names: on_slurm(replace(asked, device=names), note)
    check_ray()
    from ecoshare.cluster.ray_nodes import on_ray

    return lambda _find, names: on_ray(replace(asked, device=names), options.address, note)


def _shipped(options: MachineOptions) -> Path | None:
    """Folder of `--ship`; None without it."""
    from ecoshare.cluster.shipped_jobs import shipped_folder

    return shipped_folder(Path(options.ship)) if options.ship is not None else None


def _planner(request: RunRequest) -> tuple[LoadedJobs, Callable[[PlannedMachines], Plan]]:
    """The jobs, and a function that plans them on machines and shows the notes of the plan."""
    from ecoshare.jobs.from_values import given_jobs

    plan_jobs = job_planner(request)
    loaded = given_jobs(request.jobs, request.args)

    def planned(machines: PlannedMachines) -> Plan:
        made = plan_jobs(loaded, machines)
        for line in made.notes:
            request.note(line)
        return made

    return loaded, planned


def job_planner(options: RunOptions, queue: str = "") -> PlanJobs:
    """Function that plans jobs on machines as options ask for, beside jobs of other classes.

    Args:
        options: The options.
        queue: Name of the queue that the jobs belong to; empty for those of a run.
    """
    from ecoshare.runtime.planning.plan import Plan

    options = RunOptions(**{name: getattr(options, name) for name in options_of(RunOptions)})

    def planned(loaded: LoadedJobs, machines: PlannedMachines, beside: Collection[str] = ()) -> Plan:
        made = Plan.of(loaded, machines, options, queue=queue, beside=beside)
        if (folder := _shipped(options)) is not None:
            from ecoshare.cluster.shipped_jobs import check_shipped

            check_shipped(made.everything, loaded, folder)
        return made

    return planned
