"""Host memory of a plan: how much parked jobs may take, and what the policy can do without it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace

from ecoshare.common.machine_memory import free_swap_bytes, total_bytes
from ecoshare.common.plural import listed
from ecoshare.devices import mps
from ecoshare.devices.registry import vendor
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.quantities import format_size
from ecoshare.policy_names import displaces, packs, widens
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.device import DeviceInfo

OPTION = "--host-memory"

_NEEDS_PLACES = frozenset({"tiresias", "gittins", "srtf", "srsf", "priority", "gandiva", "least-energy"})
"""Policies that give little without preemption: their papers let urgent jobs take the places of others."""


def check_host_memory(host_bytes: int, policy: str, devices: Sequence[DeviceInfo], lanes: int) -> None:
    """Check that waiting jobs can be parked on this machine, and that it has so much memory.

    Raises:
        UsageError: The policy parks no job.
        UnfitEnvironment: The machine has less memory, or memory of a device cannot be moved.
    """
    if not displaces(policy):
        raise UsageError(
            f"{OPTION}: policy {policy} parks no job", "take a policy with an order, such as priority, srtf or fair"
        )
    on_processors = devices[0].on_processors
    most_bytes = total_bytes() + (free_swap_bytes() if on_processors else 0)
    if host_bytes > most_bytes:
        raise UnfitEnvironment(
            f"{OPTION} {format_size(host_bytes)}: this machine has {format_size(most_bytes)}",
            "give less; the memory of parked jobs lies there",
        )
    if lanes > 1 and not on_processors and shutil.which(mps.CONTROL) is not None:
        raise UnfitEnvironment(
            f"{OPTION}: jobs of parallel lanes share a context through MPS, and their memory cannot be moved",
            "give it with one lane, the default of this policy",
        )
    for device in devices:
        vendor(device.vendor).memory_transfer(device, dict(os.environ))


def left_for_jobs(host_bytes: int, devices: Sequence[DeviceInfo], memory_bytes: int | None) -> tuple[DeviceInfo, ...]:
    """The devices, with the memory that running jobs may use on each.

    On processors, parked jobs share the main memory with them: what does not fit into free swap is set aside.

    Args:
        host_bytes: Host memory for parked jobs.
        devices: The devices.
        memory_bytes: Memory that the user gives the running jobs of each device; None for all that is left.

    Raises:
        UnfitEnvironment: Both together are more than there is.
    """
    set_aside_bytes = max(0, host_bytes - free_swap_bytes()) if devices[0].on_processors and host_bytes else 0
    left = []
    for device in devices:
        left_bytes = device.memory_bytes - -(-set_aside_bytes // len(devices))
        if set_aside_bytes and (memory_bytes or 1) > left_bytes:
            both = f"{OPTION} {format_size(host_bytes)}"
            both += "" if memory_bytes is None else f" and --memory {format_size(memory_bytes)}"
            there = f"jobs on the processors have {format_size(sum(each.memory_bytes for each in devices))} in all"
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
    elif policy in _NEEDS_PLACES and not host_bytes and len(stopped) < len(jobs) and len(jobs) > at_once:
        kept = listed([job.spec.name for job in jobs if not job.spec.movable])
        lines.append(
            f"policy {policy}: {kept} keep their places once they run; `{OPTION} SIZE` parks jobs for more urgent ones"
        )
    return lines
