"""Devices of a machine that comes or goes while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ecoshare.values.device import DeviceInfo


@dataclass(frozen=True, slots=True)
class JoiningDevices:
    """Devices that the run uses from the next calm moment on; see `core/segments.py`.

    Attributes:
        devices: The devices, with the memory that jobs may use.
        environment: Facts for `environment.json`, to be added to those that it has.
        began: Called when the run has begun to use them.
    """

    devices: tuple[DeviceInfo, ...]
    environment: Mapping[str, Any]
    began: Callable[[], None]


@dataclass(frozen=True, slots=True)
class LeavingDevices:
    """Devices that the run does without from now on, if this moment is calm, no job uses them, and none waits.

    Attributes:
        names: Names of the devices.
        left: Called when the run does without them.
    """

    names: frozenset[str]
    left: Callable[[], None]
