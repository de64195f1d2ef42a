"""Checks that a device measures its joules, before jobs start for a search."""

from __future__ import annotations

import contextlib

from ecoshare.devices.discovery import DeviceInfo
from ecoshare.devices.nvml import OpenGpu
from ecoshare.devices.nvml_meter import NvmlMeter
from ecoshare.devices.rapl_meter import RaplMeter
from ecoshare.errors import UnfitEnvironment


def check_meter(device: DeviceInfo) -> None:
    """Return if the device has a meter that measures joules; a search needs one.

    Raises:
        UnfitEnvironment: This device has no meter that can be read.
    """
    try:
        if device.uuid is None:
            RaplMeter().open()
        else:
            with contextlib.closing(OpenGpu(device.uuid)) as gpu:
                NvmlMeter(gpu).open()
    except UnfitEnvironment as fault:
        raise UnfitEnvironment(
            f"tuning takes joules that are measured: {fault}", fault.hint or "see `ecoshare doctor`"
        ) from fault
