"""Checks that a device measures its joules, before jobs start for a search."""

from __future__ import annotations

import contextlib

from ecoshare.devices.registry import open_device
from ecoshare.errors import UnfitEnvironment
from ecoshare.values.device import DeviceInfo


def check_meter(device: DeviceInfo) -> None:
    """Return if the device has a meter that measures joules; a search needs one.

    Raises:
        UnfitEnvironment: This device has no meter that can be read.
    """
    try:
        with contextlib.closing(open_device(device)) as opened:
            opened.open_meter()
    except UnfitEnvironment as fault:
        raise UnfitEnvironment(
            f"tuning takes joules that are measured: {fault}", fault.hint or "see `ecoshare doctor`"
        ) from fault
