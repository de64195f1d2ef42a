"""Keeps a process in step with its device, so that a boundary is where the device is, too."""

from __future__ import annotations

import sys
from typing import Any


class DeviceSync:
    """Lets the processor run ahead of the device by one iteration at most, so that times are the device's."""

    def __init__(self) -> None:
        self._mark: Any = None

    def keep(self) -> None:
        """At a boundary: wait for the device to reach the one before."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            mark, self._mark = self._mark, torch.cuda.Event(blocking=True)
            self._mark.record()
            if mark is not None:
                mark.synchronize()


def drain(alone: bool = True) -> None:
    """Wait until the device has done all that this process has asked of it.

    Args:
        alone: Whether this process has no job beside the one that asks; else only what its thread has asked is waited
            for.

    Raises:
        RuntimeError: The device has failed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    if alone:
        torch.cuda.synchronize()  # the whole device, of this process alone: an event would miss side streams
    else:
        done = torch.cuda.Event(blocking=True)
        done.record()
        done.synchronize()


def spans_processes() -> bool:
    """Whether this process trains together with others, which must not be made to wait for it."""
    distributed = sys.modules.get("torch.distributed")
    return bool(
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
