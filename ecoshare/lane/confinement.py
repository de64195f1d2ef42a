"""Confinement of a job to its device: its partition of the processors, or the GPU of its lane.

Many scripts choose a GPU by its number in the machine, in their first lines. It would be that of another lane's device,
or of none. CUDA reads the variable once, when it begins.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables by which a user gives torch a number of threads, whatever the number of processors."""


def confine(processors: Sequence[int]) -> None:
    """Keep this process, and all that it starts, on these processors.

    Args:
        processors: Numbers of the processors; none to leave the process as it is.
    """
    if processors:
        os.sched_setaffinity(0, processors)


def match_threads(processors: Sequence[int]) -> None:
    """Give torch the number of threads that it would choose if it were loaded on these processors.

    The warm server has loaded torch on all processors. An interpreter of its own needs no call.

    Args:
        processors: Numbers of the processors; none to leave torch as it is.
    """
    if processors and not any(name in os.environ for name in _GIVEN):
        import torch

        torch.set_num_threads(len(processors))


NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that choose devices."""

_BEGINS = ("_C._cuda_getDeviceCount", "_C._cuda_init", "cuda._parse_visible_devices")
"""Functions of torch that begin CUDA, or count devices without it."""


def keep_visible_devices(given: Mapping[str, str | None]) -> None:
    """Let torch begin CUDA with the variables that the run has given. torch must be imported, without CUDA so far.

    Args:
        given: Changes to the environment of the job.
    """
    import torch

    def first(begin: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(begin)
        def begins(*args: Any) -> Any:
            restore_visible_devices(given)
            return begin(*args)

        return begins

    for place, name in (each.split(".") for each in _BEGINS):
        module = getattr(torch, place)
        if (begin := getattr(module, name, None)) is not None:  # a build for the processors lacks some of them
            setattr(module, name, first(begin))


def restore_visible_devices(given: Mapping[str, str | None]) -> None:
    """Give the variables the values that the run has given."""
    os.environ.update({name: value for name in NAMES if (value := given.get(name)) is not None})


def check_device(given: Mapping[str, str | None], devices: Sequence[int]) -> None:
    """Check, when CUDA has just begun, that this process has the devices of its lanes.

    Args:
        given: Changes to the environment of the job.
        devices: Numbers of the devices of this process among those that it sees.

    Raises:
        SystemExit: It has others: something has begun CUDA before torch. The message says so.
    """
    names = (given.get(NAMES[0]) or "").split(",")
    for device in devices:
        has = getattr(sys.modules["torch"].cuda.get_device_properties(device), "uuid", None)
        if has is None or device >= len(names) or not names[device].startswith("GPU-"):
            continue  # an older torch, or a vendor that names devices otherwise
        if str(has).lower() != names[device].removeprefix("GPU-").lower():
            raise SystemExit(
                f"this job has begun CUDA on GPU-{has}, and its lane is on {names[device]}: "
                f"do not set {NAMES[0]} before a library other than torch uses CUDA"
            )
