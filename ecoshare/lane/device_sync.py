"""Keeps a process in step with its device, so that a boundary of the script is one of the device, too."""

from __future__ import annotations

import sys
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


def drain(alone: bool = True) -> None:
    """Wait until the device has finished the work of this process.

    Args:
        alone: Whether the calling job has the process to itself. Otherwise only the current stream of the calling
            thread is waited for.

    Raises:
        RuntimeError: If the device has failed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    if alone:
        torch.cuda.synchronize()  # all streams of this process: an event would miss side streams
    else:
        done = torch.cuda.Event(blocking=True)
        done.record()
        done.synchronize()


def spans_processes() -> bool:
    """Whether this process trains together with other processes, which must not have to wait for it."""
    distributed = sys.modules.get("torch.distributed")
    return bool(
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
