"""Joules of an allocation that waits for the end of its predecessor.

GPUs are measured by their own counters. A counter of processors also counts whatever else runs on the machine, which
may be the predecessor itself, so the joules of processors are modelled: their power at rest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ecoshare.devices.choice import find_all
from ecoshare.devices.meter import Meter, Reading, between
from ecoshare.devices.registry import open_device, power_models
from ecoshare.devices.vendor import OpenDevice
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.values.allocation_chain import IDLE_GPU_W
from ecoshare.values.device import DeviceInfo
from ecoshare.values.joules import MEASURED, MODELLED


@dataclass(frozen=True, slots=True)
class IdleJoules:
    """Joules of an idle allocation.

    Attributes:
        value_j: Joules of the devices of all its machines.
        source: `measured`, or `modelled`.
    """

    value_j: float
    source: str


@dataclass(slots=True)
class _Metered:
    """Device of this machine with its meter, and the first reading."""

    device: DeviceInfo
    opened: OpenDevice | None = None
    meter: Meter | None = None
    first: Reading | None = None


@dataclass(slots=True)
class IdleEnergy:
    """Joules of the devices of an allocation from now on.

    Attributes:
        machines: Number of machines. Those of this one are measured; the others count as much, modelled.
        wanted: Names of the devices; None for the GPUs, else the processors.
        limit: Number of devices of a machine; None for all.
    """

    machines: int
    wanted: str | None
    limit: int | None
    _began_s: float = field(default_factory=time.monotonic)
    _metered: list[_Metered] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the meters. One that fails is replaced by a model."""
        try:
            devices = find_all(self.wanted)[: self.limit]
        except EcoshareError:  # the run will tell what is wrong with the devices
            return
        for device in devices:
            own = _Metered(device)
            self._metered.append(own)
            if device.on_processors:
                continue
            try:
                own.opened = open_device(device)
                own.meter = own.opened.open_meter()
                own.first = own.meter.read()
            except UnfitEnvironment:
                own.meter = None

    def end(self) -> IdleJoules | None:
        """Joules since the beginning, after which the devices are closed; None if no device is known."""
        wall_s = time.monotonic() - self._began_s
        total_j, measured = 0.0, self.machines == 1
        for own in self._metered:
            measured_j = _measured_j(own)
            measured = measured and measured_j is not None
            total_j += _modelled_j(own.device, wall_s) if measured_j is None else measured_j
            if own.opened is not None:
                own.opened.close()
        if not self._metered:
            return None
        return IdleJoules(self.machines * total_j, MEASURED if measured else MODELLED)


def _measured_j(own: _Metered) -> float | None:
    if own.meter is None or own.first is None:
        return None
    try:
        return between(own.first, own.meter.read(), own.meter.info).value_j
    except UnfitEnvironment:
        return None


def _modelled_j(device: DeviceInfo, wall_s: float) -> float:
    try:
        model = power_models([device])[device.name]
    except UnfitEnvironment:
        model = None
    return model.idle_j(wall_s) if model is not None else IDLE_GPU_W * wall_s
