"""Keeps a process in step with its device, so that a boundary of the script is one of the device, too.

The device is that of the process's lane. A rank sees those of the others, too, and need not have made its own the
current one: some scripts name it in each call.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from ecoshare.lane.after_import import is_importing


class DeviceSync:
    """Lets the CPU run ahead of the device by at most one iteration, so that measured times are the device's."""

    def __init__(self, device: int | None = 0) -> None:
        """Begin without a boundary.

        Args:
            device: Number of the device among those that the process sees; None for the current one.
        """
        self._device = device
        self._mark: Any = None
        self._other: Any = None
        self._loaded = 0

    def keep(self) -> None:
        """Wait, at a boundary, until the device has reached the previous boundary."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            module = torch.cuda
        else:
            # Another accelerator can only come with modules of its own, and to ask torch for it takes longer.
            if len(sys.modules) != self._loaded:
                self._loaded = len(sys.modules)
                self._other = _other_accelerator(torch)
            if self._other is None or not self._other.is_initialized():
                return
            module = self._other
        mark, self._mark = self._mark, _mark(module, self._device)
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
    if torch is None:
        return
    module = torch.cuda if torch.cuda.is_initialized() else _other_accelerator(torch)
    if module is None or not module.is_initialized():
        return
    if alone:
        for device in devices or (None,):
            module.synchronize(device)  # all streams of this process: an event would miss side streams
    else:
        _mark(module, None).synchronize()


def _other_accelerator(torch: Any) -> Any:
    """Module of torch for the accelerator that it has while CUDA is not in use, or None. Nothing is initialised."""
    if torch.__version__.startswith("2.6."):
        return None  # this version initialises CUDA to answer the question
    kind = torch.accelerator.current_accelerator()
    if kind is None:
        return None
    module = getattr(torch, kind.type, None)
    return module if hasattr(module, "is_initialized") else None


def _mark(module: Any, device: int | None) -> Any:
    """Event at the end of the present work of the current stream of a device; None for the current device."""
    torch = sys.modules["torch"]
    if module is torch.cuda:  # `torch.Event` ignores `blocking`: waits for it would keep a processor busy
        event, stream = torch.cuda.Event(blocking=True), torch.cuda.current_stream(device)
    else:
        event, stream = torch.Event(), torch.accelerator.current_stream(device)
    event.record(stream)
    return event


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


_LOST_SHARE = 1 / 16
"""Memory that an allocator loses between the blocks of its segments / memory of tensors at their peak, as
`core.memory.LOST_SHARE`."""


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
        _limits[device] = most_bytes


_limits: dict[int, int] = {}
"""Limit (bytes) of torch's allocator on each device that has one."""


def change_limit(most_bytes: int, device: int = 0) -> bool:
    """Limit torch's allocator on a device to this. Return False, and change nothing, if the job needs more than that.

    It needs more if it keeps more or has had more at its peak, or if nothing can be known. A higher limit than before
    is always taken: without it the job would end sooner.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        statistics = torch.cuda.memory_stats(device)
        if statistics["reserved_bytes.all.current"] > most_bytes:
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
            statistics = torch.cuda.memory_stats(device)
    except RuntimeError:  # a plugged-in allocator, or a device that has failed
        return False
    needed_bytes = int((1.0 + _LOST_SHARE) * statistics["allocated_bytes.all.peak"])
    needed_bytes = max(statistics["reserved_bytes.all.current"], needed_bytes)
    if needed_bytes > most_bytes and most_bytes < _limits.get(device, needed_bytes):
        return False
    limit_cuda(most_bytes, device)
    return True


def memory_in_use(device: int = 0) -> tuple[int, int]:
    """Memory (bytes) of this process's tensors at their peak, and memory that it keeps while it waits; 0 if unknown.

    Both are those of one device, without the context. Blocks that are free between used ones are kept, too.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0, 0
    try:
        statistics = torch.cuda.memory_stats(device)
        live_bytes = statistics["allocated_bytes.all.current"]
        return statistics["allocated_bytes.all.peak"], live_bytes + statistics["inactive_split_bytes.all.current"]
    except (RuntimeError, KeyError):
        return 0, 0


def spans_processes() -> bool:
    """Whether this process trains together with other processes, which must not have to wait for it."""
    distributed = sys.modules.get("torch.distributed")
    return bool(
        distributed is not None
        and not is_importing("torch.distributed")
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
