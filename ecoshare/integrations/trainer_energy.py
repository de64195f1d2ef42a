"""Joules of the device on which a trainer works, for the trainer's own log.

A job cannot read its own share of the joules: the controller of a run attributes them after the run. So a trainer logs
those of the whole device, idle power and the neighbours of the job included, and their names say so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any

import ecoshare
from ecoshare.devices import registry
from ecoshare.devices.meter import Meter, MeterFault, Reading, energy_between
from ecoshare.devices.vendor import OpenDevice
from ecoshare.errors import EcoshareError

ENERGY = "device_energy_j"
"""Name of the joules that the whole device has spent since the training began."""

ENERGY_PER_STEP = "device_energy_j_per_step"
"""Name of the joules of the whole device per optimizer step, since the log before."""


class TrainerEnergy:
    """Measures a device with its energy counter, while a trainer works on it.

    Attributes:
        source: `measured`, or empty if the device has no counter that this process may read.
    """

    def __init__(self) -> None:
        """Prepare a measurement. Call `begin` before `values`."""
        self.source = ""
        self._device: OpenDevice | None = None
        self._meter: Meter | None = None
        self._first = self._last = Reading(0.0, 0.0)
        self._last_step = 0
        self._told = False

    def begin(self, device: str, step: int) -> None:
        """Begin to measure. A note on stderr says what is measured, or why nothing is, once.

        Args:
            device: Device in torch's words: `cpu`, `cuda` or `cuda:1`.
            step: Optimizer steps so far.
        """
        self.end()
        try:
            self._device = registry.open_device(registry.find(device))
            self._meter = self._device.open_meter()
            self._first = self._last = self._meter.read()
        except EcoshareError as error:
            self.end()
            self._say(f"no energy is logged: {error}")
            return
        self._last_step = step
        self.source = self._meter.info.source
        self._say(f"{ENERGY} is {self.source}, of the whole device {device}: {self._meter.info.about}")

    def values(self, step: int) -> dict[str, float]:
        """Joules since the training began and, if there were steps, per step since the last call.

        Empty if nothing is measured, or if less time has passed than the counter takes for an update.

        Args:
            step: Optimizer steps so far.
        """
        if self._meter is None:
            return {}
        try:
            now = self._meter.read()
            values = {ENERGY: energy_between(self._first, now, self._meter.info).value_j}
            if (steps := step - self._last_step) > 0:
                values[ENERGY_PER_STEP] = energy_between(self._last, now, self._meter.info).value_j / steps
                self._last, self._last_step = now, step
        except MeterFault:  # this interval is not known; the counter may answer again
            return {}
        return values

    def end(self) -> None:
        """Release the device."""
        if self._device is not None:
            self._device.close()
        self._device = self._meter = None
        self.source = ""

    def _say(self, words: str) -> None:
        if not self._told:
            print(f"ecoshare: {words}", file=sys.stderr)
        self._told = True


def report_numbers(metrics: Mapping[str, Any]) -> None:
    """Report those metrics that are one number to the sweep of this job. Outside a run nothing happens."""
    numbers = {name: float(value) for name, value in metrics.items() if _is_number(value)}
    if numbers:
        ecoshare.report(**numbers)


def _is_number(value: Any) -> bool:
    if isinstance(value, Real):  # numpy's numbers, too
        return not isinstance(value, bool)
    return getattr(value, "numel", lambda: 0)() == 1
