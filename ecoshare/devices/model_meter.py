"""Meter of a device without a readable meter: a power model, applied to the busy time of the run's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable

from ecoshare.devices.meter import MeterInfo, Reading
from ecoshare.devices.power_model import PowerModel
from ecoshare.values.joules import MODELLED


class ModelMeter:
    """Computes the joules of a device from a power model and the busy time of the run's jobs."""

    def __init__(self, model: PowerModel, scope: str, busy_s: Callable[[], float], why: str) -> None:
        """Make a meter that counts from now on.

        Args:
            model: Power model of the device.
            scope: `gpu` or `cpu`.
            busy_s: Returns the jobs' busy time so far: core-seconds, or seconds of a GPU held. It never decreases.
            why: Reason why no real meter is read; it becomes part of `info`.
        """
        self._model, self._scope, self._busy_s, self._why = model, scope, busy_s, why
        self._began_s = time.monotonic()

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        return MeterInfo("model", MODELLED, self._scope, f"{self._model.source}; {self._why}", 0.0)

    def read(self) -> Reading:
        """Joules since this meter was made: idle power over that time, plus the energy that the jobs' work adds."""
        at_s = time.monotonic()
        return Reading(at_s, self._model.idle_j(at_s - self._began_s) + self._model.active_j(self._busy_s()))
