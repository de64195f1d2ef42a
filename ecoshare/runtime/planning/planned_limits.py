"""Limits that the user sets for a whole run: host memory for parked jobs, and the power budget."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from ecoshare.base.class_profile import BY_LIMITS, BY_PLACEMENT, POWER_LIMIT
from ecoshare.base.device import LOCAL, DeviceInfo
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.machine_memory import free_swap_bytes, total_bytes
from ecoshare.base.measurement import TUNING_LIMIT
from ecoshare.base.plural import counted, listed
from ecoshare.core.placement.limits import adds_alone_w
from ecoshare.core.settings.power_allocation import TOLERANCE_W
from ecoshare.devices.control.state_folder import key
from ecoshare.devices.knob import KnobSpec
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.nvidia import mps
from ecoshare.devices.registry import open_knobs, vendor
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.load import LoadedJobs, mistake_of
from ecoshare.jobs.quantities import format_size, number
from ecoshare.policy_names import displaces, needs_places, packs, widens
from ecoshare.runtime.planning.planned_job import PlannedJob


@dataclass(frozen=True, slots=True)
class ParkingHost:
    """A machine on which jobs may be parked.

    Attributes:
        total_bytes: Main memory (bytes) that processes may use.
        free_swap_bytes: Free swap (bytes).
        has_mps: Whether parallel lanes share a context through MPS there.
        refusal: Reason why memory of its devices cannot be moved, one line; empty if it can.
        hint: Remedy; empty if there is none.
    """

    total_bytes: int
    free_swap_bytes: int
    has_mps: bool = False
    refusal: str = ""
    hint: str = ""


def parking_host(devices: Sequence[DeviceInfo]) -> ParkingHost:
    """This machine, with its devices."""
    refusal = hint = ""
    for device in devices:
        try:
            vendor(device.vendor).memory_transfer(device, dict(os.environ))
        except UnfitEnvironment as error:
            refusal, hint = str(error), error.hint
            break
    has_mps = not devices[0].on_processors and shutil.which(mps.CONTROL) is not None
    return ParkingHost(total_bytes(), free_swap_bytes(), has_mps, refusal, hint)


ParkingHosts = Mapping[str, ParkingHost]
"""Machine of each node of a run."""

HOST_OPTION = "--host-memory"


def check_host_memory(
    host_bytes: int, policy: str, devices: Sequence[DeviceInfo], lanes: int, hosts: ParkingHosts
) -> None:
    """Check that waiting jobs can be parked on each machine, and that it has so much memory.

    Raises:
        UsageError: The policy parks no job.
        UnfitEnvironment: A machine has less memory, or memory of a device cannot be moved.
    """
    if not displaces(policy):
        raise UsageError(
            f"{HOST_OPTION}: policy {policy} parks no job",
            "take a policy with an order, such as priority, srtf or fair",
        )
    for node, host in hosts.items():
        most_bytes = host.total_bytes + (host.free_swap_bytes if devices[0].on_processors else 0)
        if host_bytes > most_bytes:
            raise UnfitEnvironment(
                f"{HOST_OPTION} {format_size(host_bytes)}: {_words(node, hosts)} has {format_size(most_bytes)}",
                "give less; the memory of parked jobs lies there",
            )
        if lanes > 1 and host.has_mps:
            raise UnfitEnvironment(
                f"{HOST_OPTION}: jobs of parallel lanes share a context through MPS, and their memory cannot be moved",
                "give it with one lane, the default of this policy",
            )
        if host.refusal:
            where = f"{_words(node, hosts)}: " if len(hosts) > 1 or node != LOCAL else ""
            raise UnfitEnvironment(f"{where}{host.refusal}", host.hint)


def _words(node: str, hosts: ParkingHosts) -> str:
    return f"the node {node}" if len(hosts) > 1 or node != LOCAL else "this machine"


def left_for_jobs(
    host_bytes: int, devices: Sequence[DeviceInfo], memory_bytes: int | None, hosts: ParkingHosts
) -> tuple[DeviceInfo, ...]:
    """The devices, with the memory that running jobs may use on each.

    On processors, parked jobs share the main memory with them: what does not fit into free swap is set aside.

    Args:
        host_bytes: Host memory for parked jobs.
        devices: The devices.
        memory_bytes: Memory that the user gives the running jobs of each device; None for all that is left.
        hosts: Machine of each node, if `host_bytes` is not 0.

    Raises:
        UnfitEnvironment: Both together are more than there is.
    """
    left = []
    for device in devices:
        beside = [each for each in devices if each.node == device.node]
        is_there = device.on_processors and host_bytes
        set_aside_bytes = max(0, host_bytes - hosts[device.node].free_swap_bytes) if is_there else 0
        left_bytes = device.memory_bytes - -(-set_aside_bytes // len(beside))
        if set_aside_bytes and (memory_bytes or 1) > left_bytes:
            both = f"{HOST_OPTION} {format_size(host_bytes)}"
            both += "" if memory_bytes is None else f" and --memory {format_size(memory_bytes)}"
            there = f"jobs on the processors have {format_size(sum(each.memory_bytes for each in beside))} in all"
            raise UnfitEnvironment(f"{both}: {there}", "give less to one of them")
        left.append(replace(device, memory_bytes=min(memory_bytes or left_bytes, left_bytes)))
    return tuple(left)


def parking_notes(jobs: Sequence[PlannedJob], policy: str, host_bytes: int, at_once: int, devices: int) -> list[str]:
    """Notes for the user about jobs that keep their places; empty if there is none.

    Args:
        jobs: Jobs of the run.
        policy: Name of the policy.
        host_bytes: Host memory (bytes) for parked jobs.
        at_once: Number of jobs that have places at once.
        devices: Number of devices of the run.
    """
    stopped = [job.spec.name for job in jobs if job.spec.movable and job.source.sweep is None]
    lines = []
    if widens(policy):
        return []  # it stops jobs to give them other devices
    if stopped and not displaces(policy):
        effect = "only lets jobs move to idle devices" if packs(policy) and devices > 1 else "has no effect"
        lines.append(f"policy {policy} stops no job for another one, so `preemptible` {effect}")
    elif needs_places(policy) and not host_bytes and len(stopped) < len(jobs) and len(jobs) > at_once:
        kept = listed([job.spec.name for job in jobs if not job.spec.movable])
        lines.append(
            f"policy {policy}: {kept} keep their places once they run; "
            f"`{HOST_OPTION} SIZE` parks jobs for more urgent ones"
        )
    return lines


POWER_OPTION = "--power-budget"
BY_OPTION = "--power-budget-by"
_SETS_NOTHING = f"`{BY_OPTION} {BY_PLACEMENT}` sets nothing, and only decides which jobs may start"


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """Power budget of a run.

    Attributes:
        watts: Power (W) that the devices together may draw; 0 for no budget.
        by_placement: Whether no power limit is set, and the budget only decides which jobs may start.
        tuning_limit: Time of an iteration under a power limit / time under the limit that was found, at most, as long
            as the budget suffices for that.
        limits_w: Power limits (W) that each device takes, ascending, by its name; the last is the one that it has now.
            Empty for a budget by placement.
        draws_w: Power (W) of each device at rest, and the most that it can draw, by its name. Empty otherwise.
    """

    watts: float
    by_placement: bool = False
    tuning_limit: float = TUNING_LIMIT
    limits_w: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    draws_w: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        """Whether there is a budget."""
        return self.watts > 0.0

    @property
    def sets_limits(self) -> bool:
        """Whether the run sets power limits to keep the budget."""
        return bool(self) and not self.by_placement

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        by = BY_PLACEMENT if self.by_placement else BY_LIMITS
        return {"watts": self.watts, "by": by, "tuning_limit": self.tuning_limit}


NO_BUDGET = PlannedBudget(0.0)


def planned_budget(
    watts: float, by: str, machines: PlannedMachines, may_set: bool, tuning_limit: float = TUNING_LIMIT
) -> PlannedBudget:
    """Power budget of a run on these machines. Nothing is set or claimed yet.

    Args:
        watts: The budget (W).
        by: `limits` or `placement`.
        machines: Machines of the run.
        may_set: Whether the run may set power limits.
        tuning_limit: See `PlannedBudget`.

    Raises:
        UsageError: `by` is neither of the two, or the run may set nothing.
        UnfitEnvironment: The limits of a device cannot be set, the power of a device is not known, or the budget is
            less than the devices need in any case.
    """
    if by not in (BY_LIMITS, BY_PLACEMENT):
        raise UsageError(f"{BY_OPTION} {by}: expected {BY_LIMITS} or {BY_PLACEMENT}")
    if by == BY_PLACEMENT:
        draws_w = {name: _draws_w(name, model) for name, model in machines.power_models(machines.devices).items()}
        _enough(watts, [idle_w for idle_w, _ in draws_w.values()], "the idle devices draw")
        return PlannedBudget(watts, True, tuning_limit, draws_w=draws_w)
    if not may_set:
        raise UsageError(f"{POWER_OPTION} sets power limits, and --control off sets nothing", _SETS_NOTHING)
    return with_limits(PlannedBudget(watts, tuning_limit=tuning_limit), machines.power_limits_w())


def check_job(budget: PlannedBudget, loaded: LoadedJobs, job: JobSpec) -> None:
    """Check that a budget by placement suffices for a job while no other job runs.

    Raises:
        InvalidJobFile: It does not.
    """
    if not budget.by_placement:
        return
    idle_w = sum(idle_w for idle_w, _ in budget.draws_w.values())
    with_it_w = idle_w + adds_alone_w(job, list(budget.draws_w.values()))
    if with_it_w > budget.watts:
        words = f"the devices would draw {number(with_it_w)} W with this job alone"
        raise mistake_of(
            loaded, job.name, "script", f"{words}, and {POWER_OPTION} is {number(budget.watts)} W", "give more"
        )


def with_limits(budget: PlannedBudget, limits_w: Mapping[str, tuple[float, ...]]) -> PlannedBudget:
    """The budget with the limits that the devices take now.

    Raises:
        UnfitEnvironment: The least limits exceed the budget.
    """
    _enough(budget.watts, [each[0] for each in limits_w.values()], "the least power limits are")
    return replace(budget, limits_w=dict(limits_w))


def limits_of(specs: Sequence[KnobSpec]) -> tuple[float, ...]:
    """Power limits (W) among the knobs of a device, ascending; empty without such a knob."""
    return next((tuple(each.values) for each in specs if each.name == POWER_LIMIT), ())


def _enough(watts: float, needed_w: Sequence[float], words: str) -> None:
    if sum(needed_w) > watts + TOLERANCE_W:
        each = f", {number(needed_w[0])} W each" if len(set(needed_w)) == 1 and len(needed_w) > 1 else ""
        all_of_them = f"{number(sum(needed_w))} W on {counted(len(needed_w), 'device')}{each}"
        raise UnfitEnvironment(
            f"{POWER_OPTION} {number(watts)} W: {words} {all_of_them}",
            "give more, or take fewer devices with --devices",
        )


def device_limits_w(device: DeviceInfo) -> tuple[float, ...]:
    """Power limits (W) that a device takes now, ascending. A device that is at its least limit takes that one only.

    Raises:
        UnfitEnvironment: They cannot be set here.
    """
    if device.on_processors:
        raise UnfitEnvironment(
            f"{POWER_OPTION}: the power limit of {device.name} cannot be set for a run", _SETS_NOTHING
        )
    knobs = open_knobs(device.vendor, key(device))
    try:
        if not knobs.access.allowed:
            remedy = f"{knobs.access.remedy}; " if knobs.access.remedy else ""
            words = f"{POWER_OPTION}: power limits of {device.model} cannot be set: {knobs.access.how}"
            raise UnfitEnvironment(words, remedy + _SETS_NOTHING)
        limits_w = limits_of([each.spec for each in knobs.knobs])
        if not limits_w:
            why = knobs.missing.get(POWER_LIMIT, "it has no such limit")
            raise UnfitEnvironment(
                f"{POWER_OPTION}: the power limit of {device.name} cannot be set: {why}", _SETS_NOTHING
            )
        return limits_w
    finally:
        knobs.close()


def _draws_w(name: str, model: PowerModel | None) -> tuple[float, float]:
    """Power (W) of a device with this name and power model at rest, and the most that it can draw.

    Raises:
        UnfitEnvironment: They are not known.
    """
    if model is None:
        raise UnfitEnvironment(f"{POWER_OPTION}: the driver does not tell the power of {name}")
    return model.idle_w, model.busy_w


class PlannedMachines(Protocol):
    """Machines as a plan sees them."""

    @property
    def devices(self) -> tuple[DeviceInfo, ...]: ...

    def power_models(self, devices: Sequence[DeviceInfo]) -> Mapping[str, PowerModel | None]:
        """Power model of each of these devices, by its name in the run; None for none.

        Raises:
            UnfitEnvironment: A device is not there, or does not answer.
        """
        ...

    def power_limits_w(self) -> Mapping[str, tuple[float, ...]]:
        """Power limits (W) that each device takes now, by its name in the run; see `device_limits_w`.

        Raises:
            UnfitEnvironment: Those of a device cannot be set.
        """
        ...

    def parking_hosts(self) -> Mapping[str, ParkingHost]:
        """Machine of each node, as it parks jobs.

        Raises:
            UnfitEnvironment: A node does not answer.
        """
        ...
