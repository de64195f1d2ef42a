"""`run`, `plan` and `resume`: several scripts share a device until all of them have ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ecoshare.api.request_values import (
    Control,
    check_control,
    duration_s,
    goal,
    no_progress,
    power_w,
    profile_store,
    request_class,
    silent,
    size_bytes,
    with_fields,
)
from ecoshare.api.run_result import RunResult
from ecoshare.base.class_profile import BY_LIMITS
from ecoshare.base.device import LEAST_NODE_TIMEOUT_S, NODE_TIMEOUT_S
from ecoshare.base.disk import RUNS
from ecoshare.base.measurement import TUNING_LIMIT
from ecoshare.cluster.nodes_request import check_counts
from ecoshare.errors import UsageError

if TYPE_CHECKING:
    from ecoshare.base.device import DeviceInfo
    from ecoshare.jobs.from_values import AnyPath, Jobs
    from ecoshare.jobs.load import LoadedJobs
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.nodes.held_machines import HoldMachines
    from ecoshare.runtime.planning.plan import Plan
    from ecoshare.runtime.planning.planned_limits import PlannedMachines
    from ecoshare.runtime.signals import StopSignals


ENGINES = ("ray", "slurm")
"""Engines that give a run machines."""

AnySharing = TypeVar("AnySharing", bound="SharingRequest")


class PlanJobs(Protocol):
    """Plans jobs on machines."""

    def __call__(self, loaded: LoadedJobs, machines: PlannedMachines, beside: Collection[str] = ()) -> Plan:
        """Plan of these jobs, which may share the devices with jobs of the classes `beside`."""
        ...


@request_class
class MachinesRequest:
    """Fields of a request that holds machines.

    Attributes:
        wait: Whether to wait for the end of a run that uses one of the devices. Otherwise such a run is an error.
        share_device: Whether to run beside a run that uses a device, with the memory that is free.
        on: Engine that gives the machines of the run: `ray`, or `slurm` in an allocation; None for this machine alone.
        address: Address of the Ray cluster, or `auto`; None to start one on this machine.
        nodes: Number of machines; None for all of the cluster.
        gpus_per_node: Number of GPUs of each machine; None for all.
        node_timeout_s: Time (s) without a message of a machine after which it counts as lost.
        ship: Folder with the scripts that Ray copies to each machine; None if the machines share their file system.
        release_idle: Time without a job after which a machine is given back, in seconds or as text such as `10 min`;
            None to keep all machines.
        note: Shows a note to the user.
        progress: Makes the display of the run's progress, when the run begins.
        signals: Handling of Ctrl-C, SIGTERM and a closed terminal; see `ecoshare.api.caller_process.drive`.
    """

    wait: bool = False
    share_device: bool = False
    on: str | None = None
    address: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    node_timeout_s: float = NODE_TIMEOUT_S
    ship: AnyPath | None = None
    release_idle: str | float | None = None
    note: Callable[[str], None] = silent
    progress: Callable[[], ProgressDisplay] = no_progress
    signals: StopSignals | None = None


@request_class
class SharingRequest(MachinesRequest):
    """Request for jobs that share devices. The fields are options of `ecoshare run` and of `ecoshare up`.

    Attributes:
        objective: `energy`, `jct`, `makespan` or `edp`.
        policy: Name of the policy; None for the policy of the objective.
        options: Options of the named policy, by name.
        device: Names of devices, such as `cuda:0,cuda:2`; `all` for all GPUs, `cpu` for the processors, `cpu/N` for N
            partitions of them. None for all GPUs of the model of the first, else the processors.
        devices: Number of devices; None for all that `device` names.
        lanes: Number of lanes of each device. Jobs of one lane take turns, lanes run side by side. None for 6 under a
            policy that chooses which jobs run side by side, else 1.
        jobs_per_lane: Most jobs in one lane when a job starts there, itself included; None for 4.
        memory: Most memory for the jobs of each device, in bytes or as text such as `8 GiB`; None for all memory.
        host_memory: Most host memory for parked jobs, in bytes or as text such as `16 GiB`; None to park none.
        power_budget: Power that all devices together may draw at most, in watts or as text such as `1.2 kW`; None for
            no budget.
        power_budget_by: Way to keep it: `limits` sets power limits, `placement` only decides which jobs may start.
        control: Whether the run may set clocks and power: `auto`, `known` or `off`.
        tuning_limit: Upper bound of an iteration's time at a setting / its time at the default setting.
        profiles: Folder of profiles; None for that of the user's data.
        use_profiles: Whether profiles of job classes are used, and new ones measured.
    """

    objective: str = "energy"
    policy: str | None = None
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    device: str | None = None
    devices: int | None = None
    lanes: int | None = None
    jobs_per_lane: int | None = None
    memory: str | int | None = None
    host_memory: str | int | None = None
    power_budget: str | float | None = None
    power_budget_by: str = BY_LIMITS
    control: Control = "auto"
    tuning_limit: float = TUNING_LIMIT
    profiles: AnyPath | None = None
    use_profiles: bool = True


@request_class
class RunRequest(SharingRequest):
    """Request for a run. The fields, with those of `SharingRequest`, are the options of `ecoshare run`.

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
class ResumeRequest(MachinesRequest):
    """Request to go on with an interrupted run. All else is as the run was asked for.

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
    hold = holder(request)
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
    hold = holder(request)
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
    _check_place(request)
    if request.on == "slurm":
        from ecoshare.cluster.slurm_nodes import await_earlier_start

        await_earlier_start(Path(request.run), request.note)
    go_on = partial(
        run_opening.resume,
        Path(request.run),
        control=request.control != "off",
        search=request.control == "auto",
        hold=holder(request),
    )
    return drive(request.signals, lambda signals: RunResult.of(go_on(progress=request.progress(), signals=signals)))


def _request(jobs: Jobs | RunRequest, fields: dict[str, Any]) -> RunRequest:
    request = with_fields(jobs if isinstance(jobs, RunRequest) else RunRequest(jobs=jobs), fields)
    check_control(request.control)
    return here_or_elsewhere(request)


def here_or_elsewhere(request: AnySharing) -> AnySharing:
    """The request, for the machines that it asks for.

    Raises:
        UsageError: The fields contradict each other, or name what does not exist.
    """
    _check_place(request)
    if request.on is None:
        return request
    _check_absent(
        {"--devices": request.devices},
        f"does not go with --on {request.on}",
    )
    if request.release_idle is not None and request.power_budget is not None:
        raise UsageError("--release-idle does not go with --power-budget: its shares are those of all devices")
    return request


def _check_place(request: MachinesRequest) -> None:
    if request.on is None:
        _check_absent(
            {
                "--address": request.address,
                "--nodes": request.nodes,
                "--gpus-per-node": request.gpus_per_node,
                "--ship": request.ship,
                "--release-idle": request.release_idle,
            },
            "is for runs on other machines: give it with --on",
        )
    elif request.on not in ENGINES:
        raise UsageError(f"--on {request.on}: expected {' or '.join(ENGINES)}")
    elif request.on == "slurm" and request.address is not None:
        raise UsageError("--address is that of a Ray cluster: it does not go with --on slurm")
    elif request.on == "slurm" and request.ship is not None:
        raise UsageError("--ship goes with --on ray: the machines of a Slurm cluster share their file system")
    elif request.on == "ray" and request.address is None and request.release_idle is not None:
        raise UsageError("--release-idle gives machines back to a cluster: name it with --address")
    elif request.wait:
        raise UsageError(f"--wait does not go with --on {request.on}")
    elif not LEAST_NODE_TIMEOUT_S <= request.node_timeout_s < math.inf:
        raise UsageError(f"--node-timeout {request.node_timeout_s:g}: expected {LEAST_NODE_TIMEOUT_S:g} s or more")
    else:
        check_counts(request.nodes, request.gpus_per_node)


def _check_absent(options: Mapping[str, object], reason: str) -> None:
    for option, given in options.items():
        if given is not None:
            raise UsageError(f"{option} {reason}")


def holder(request: MachinesRequest) -> HoldMachines:
    """Function that holds the machines of a request."""
    from ecoshare.devices.occupancy import DeviceAdmission
    from ecoshare.runtime.nodes.held_machines import this_machine

    admission = DeviceAdmission.of(request.wait, request.share_device)
    if request.on is None:
        return partial(this_machine, admission=admission, say=request.note)
    from ecoshare.cluster.nodes_request import NodesRequest

    asked = NodesRequest(
        nodes=request.nodes,
        gpus_per_node=request.gpus_per_node,
        timeout_s=request.node_timeout_s,
        share_device=request.share_device,
        ship=_shipped(request),
        idle_s=duration_s("--release-idle", request.release_idle),
    )
    if request.on == "slurm":
        from ecoshare.cluster.slurm_nodes import on_slurm

        return lambda _find, names: on_slurm(replace(asked, device=names), request.note)
    from ecoshare.cluster.ray_nodes import on_ray

    return lambda _find, names: on_ray(replace(asked, device=names), request.address, request.note)


def _shipped(request: MachinesRequest) -> Path | None:
    """Folder of `--ship`; None without it."""
    from ecoshare.cluster.shipped_jobs import shipped_folder

    return shipped_folder(Path(request.ship)) if request.ship is not None else None


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


def job_planner(request: SharingRequest, queue: str = "") -> PlanJobs:
    """Function that plans jobs on machines as a request asks for, beside jobs of other classes.

    Args:
        request: The request.
        queue: Name of the queue that the jobs belong to; empty for those of a run.

    Raises:
        UsageError: The fields contradict each other.
    """
    from ecoshare.runtime.planning import plan as planning
    from ecoshare.runtime.planning.planned_limits import NO_BUDGET, planned_budget

    memory_bytes = size_bytes("--memory", request.memory)
    host_bytes = size_bytes("--host-memory", request.host_memory) or 0
    budget_w = power_w("--power-budget", request.power_budget)
    if budget_w is None and request.power_budget_by != BY_LIMITS:
        raise UsageError("--power-budget-by is the way to keep a power budget: give it with --power-budget")
    if request.options and request.policy is None:
        raise UsageError("--option is a policy's: name it with --policy")

    def planned(loaded: LoadedJobs, machines: PlannedMachines, beside: Collection[str] = ()) -> Plan:
        searched = request.control == "auto"
        made = planning.make(
            loaded,
            machines.devices,
            objective=request.objective,
            policy=request.policy,
            options=request.options,
            lanes=request.lanes,
            places=request.jobs_per_lane if request.jobs_per_lane is not None else planning.PLACES,
            memory_bytes=memory_bytes,
            store=profile_store(request.profiles) if request.use_profiles else None,
            control=request.control != "off",
            goal=goal(request.objective, request.tuning_limit, planning.MOST_TRIALS) if searched else None,
            host_bytes=host_bytes,
            hosts=machines.parking_hosts() if host_bytes else {},
            budget=NO_BUDGET
            if budget_w is None
            else planned_budget(
                budget_w, request.power_budget_by, machines, request.control != "off", request.tuning_limit
            ),
            queue=queue,
            beside=beside,
        )
        if (folder := _shipped(request)) is not None:
            from ecoshare.cluster.shipped_jobs import check_shipped

            check_shipped(made.everything, loaded, folder)
        return made

    return planned
