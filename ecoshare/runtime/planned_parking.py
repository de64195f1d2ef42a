"""Host memory of a plan: how much parked jobs may take, and what the policy can do without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ecoshare.common.plural import listed
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.quantities import format_size
from ecoshare.policy_names import displaces, needs_places, packs, widens
from ecoshare.runtime.parking_host import ParkingHost
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.device import LOCAL, DeviceInfo

ParkingHosts = Mapping[str, ParkingHost]
"""Machine of each node of a run."""

OPTION = "--host-memory"


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
            f"{OPTION}: policy {policy} parks no job", "take a policy with an order, such as priority, srtf or fair"
        )
    for node, host in hosts.items():
        most_bytes = host.total_bytes + (host.free_swap_bytes if devices[0].on_processors else 0)
        if host_bytes > most_bytes:
            raise UnfitEnvironment(
                f"{OPTION} {format_size(host_bytes)}: {_words(node, hosts)} has {format_size(most_bytes)}",
                "give less; the memory of parked jobs lies there",
            )
        if lanes > 1 and host.has_mps:
            raise UnfitEnvironment(
                f"{OPTION}: jobs of parallel lanes share a context through MPS, and their memory cannot be moved",
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
            both = f"{OPTION} {format_size(host_bytes)}"
            both += "" if memory_bytes is None else f" and --memory {format_size(memory_bytes)}"
            there = f"jobs on the processors have {format_size(sum(each.memory_bytes for each in beside))} in all"
            raise UnfitEnvironment(f"{both}: {there}", "give less to one of them")
        left.append(replace(device, memory_bytes=min(memory_bytes or left_bytes, left_bytes)))
    return tuple(left)


def notes(jobs: Sequence[PlannedJob], policy: str, host_bytes: int, at_once: int, devices: int) -> list[str]:
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
            f"policy {policy}: {kept} keep their places once they run; `{OPTION} SIZE` parks jobs for more urgent ones"
        )
    return lines
