"""A machine on which jobs are parked: its memory, and whether memory of its devices can be moved there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from ecoshare.common.machine_memory import free_swap_bytes, total_bytes
from ecoshare.devices import mps
from ecoshare.devices.registry import vendor
from ecoshare.errors import UnfitEnvironment
from ecoshare.values.device import DeviceInfo


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
