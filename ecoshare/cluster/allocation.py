"""Whether a node has its devices for one run alone: only then may the run set them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from ecoshare.common.plural import counted
from ecoshare.devices.registry import open_device
from ecoshare.values.device import DeviceInfo

_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Variables that name the GPUs which Slurm has allocated whole."""

_FREQUENCY = "SLURM_GPU_FREQ"
"""Variable with the clocks that Slurm itself sets in an allocation."""


def why_not_alone(devices: Sequence[DeviceInfo], shares_processors: bool, environment: Mapping[str, str]) -> str:
    """Reason why other work may use the devices of a node, or sets them, one line; empty if there is none.

    Args:
        devices: Devices of the node.
        shares_processors: Whether the engine gives the processors to other work, too.
        environment: Environment of the agent. Slurm tells in it what it has allocated.
    """
    reason = _why_not_allocated(devices[0].on_processors, shares_processors, environment)
    return reason or _others_on(devices)


def _why_not_allocated(on_processors: bool, shares_processors: bool, environment: Mapping[str, str]) -> str:
    if on_processors and shares_processors:
        return "other work of the cluster may use the processors"
    if "SLURM_JOB_ID" not in environment:
        return ""
    if on_processors:
        allocated, there = environment.get("SLURM_CPUS_ON_NODE", "0"), os.cpu_count()
        return "" if allocated == str(there) else f"Slurm has allocated {allocated} of {there} processors"
    if not any(environment.get(name) for name in _GPUS):
        return "Slurm has allocated no whole GPU"
    if asked := environment.get(_FREQUENCY):
        return f"Slurm sets the clocks of this allocation (--gpu-freq={asked})"
    return ""


def _others_on(devices: Sequence[DeviceInfo]) -> str:
    """Reason in words if programs are on the GPUs before the jobs of the run begin; empty if there are none."""
    for device in devices:
        with contextlib.closing(open_device(device)) as opened:
            if found := opened.processes():
                return f"{counted(len(found), 'other process', 'other processes')} on {device.name}"
    return ""
