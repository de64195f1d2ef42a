"""Whether a run has devices of this machine for itself: only then may it set them.

Slurm tells a job in its environment what it has allocated to it. A run that is started inside an allocation by hand is
held to that, too. `GpuFreqDef` of slurm.conf is no reason: Slurm uses it only where `--gpu-freq` was asked for, and
shows a value for it (`high,memory=high`) on each cluster that does not name one.
"""

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


def why_not_allocated(devices: Sequence[DeviceInfo], environment: Mapping[str, str] = os.environ) -> str:
    """Reason why other work of Slurm may use devices, or why Slurm sets them, one line; empty if there is none.

    Args:
        devices: Devices of this machine, of one kind.
        environment: Environment of a process of the job. Without Slurm's variables there is no reason.
    """
    if "SLURM_JOB_ID" not in environment:
        return ""
    if devices[0].on_processors:
        allocated, there = environment.get("SLURM_CPUS_ON_NODE", "0"), os.cpu_count()
        return "" if allocated == str(there) else f"Slurm has allocated {allocated} of {there} processors"
    if not any(environment.get(name) for name in _GPUS):
        return "Slurm has allocated no whole GPU"
    if asked := environment.get(_FREQUENCY):
        return f"Slurm sets the clocks of this allocation (--gpu-freq={asked})"
    return ""


def why_not_alone(devices: Sequence[DeviceInfo], shares_processors: bool) -> str:
    """Reason why other work may use the devices of a node, or sets them, one line; empty if there is none.

    Args:
        devices: Devices of the node, of one kind.
        shares_processors: Whether the engine gives the processors to other work, too.
    """
    if devices[0].on_processors and shares_processors:
        return "other work of the cluster may use the processors"
    return why_not_allocated(devices) or _others_on(devices)


def _others_on(devices: Sequence[DeviceInfo]) -> str:
    """Reason in words if programs are on the GPUs before the jobs of the run begin; empty if there are none."""
    for device in devices:
        with contextlib.closing(open_device(device)) as opened:
            if found := opened.processes():
                return f"{counted(len(found), 'other process', 'other processes')} on {device.name}"
    return ""
