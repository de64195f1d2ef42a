"""Keeps a process in step with its device, so that a boundary of the script is one of the device, too."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from typing import Any


class DeviceSync:
    """Lets the CPU run ahead of the device by at most one iteration, so that measured times are the device's."""

    def __init__(self) -> None:
        self._mark: Any = None

    def keep(self) -> None:
        """Wait, at a boundary, until the device has reached the previous boundary."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            mark, self._mark = self._mark, torch.cuda.Event(blocking=True)
            self._mark.record()
            if mark is not None:
                mark.synchronize()


def drain(alone: bool = True, devices: Sequence[int] = ()) -> None:
    """Wait until the device has finished the work of this process.

    Args:
        alone: Whether the calling job has the process to itself. Otherwise only the current stream of the calling
            thread is waited for.
        devices: Numbers of the devices of a process that sees several; empty for the only one.

    Raises:
        RuntimeError: If the device has failed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    if alone and devices:
        for device in devices:
            torch.cuda.synchronize(device)
    elif alone:
        torch.cuda.synchronize()  # all streams of this process: an event would miss side streams
    else:
        done = torch.cuda.Event(blocking=True)
        done.record()
        done.synchronize()


def empty_cache(device: str) -> None:
    """Give memory that the allocator of this process has in reserve back to the device, which has finished its work.

    Args:
        device: Device of the job: `cpu` or `cuda`. For processors it is the C library that gives memory back.
    """
    torch = sys.modules.get("torch")
    if device == "cpu":
        _trim()
    elif torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):  # a device that has failed has no cache
            torch.cuda.empty_cache()


def _trim() -> None:
    with contextlib.suppress(AttributeError):  # a C library other than glibc, which keeps less
        ctypes.CDLL(None).malloc_trim(0)


def limit_cuda(most_bytes: int, device: int = 0) -> None:
    """Limit what torch's allocator may reserve on a device.

    Args:
        most_bytes: Most memory (bytes).
        device: Number of the device among those that the process sees. CUDA must be initialised.
    """
    import torch

    total_bytes = torch.cuda.get_device_properties(device).total_memory
    with contextlib.suppress(RuntimeError):  # a plugged-in allocator has no such limit
        torch.cuda.set_per_process_memory_fraction(max(0.0, min(1.0, most_bytes / total_bytes)), device)


def lower_limit(most_bytes: int) -> bool:
    """Lower the limit of torch's allocator to this. Return False, and change nothing, if the job needs more than that.

    It needs more if it keeps more or has had more at its peak, or if nothing can be known.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        statistics = torch.cuda.memory_stats(torch.cuda.current_device())
    except RuntimeError:  # a plugged-in allocator, or a device that has failed
        return False
    if max(statistics["reserved_bytes.all.current"], statistics["allocated_bytes.all.peak"]) > most_bytes:
        return False
    limit_cuda(most_bytes, torch.cuda.current_device())
    return True


def spans_processes() -> bool:
    """Whether this process trains together with other processes, which must not have to wait for it."""
    distributed = sys.modules.get("torch.distributed")
    return bool(
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
