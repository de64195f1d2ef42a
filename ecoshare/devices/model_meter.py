"""The meter of a device that has none: a power model and the busy time of the run's own jobs."""

from __future__ import annotations

import time
from collections.abc import Callable

from ecoshare.devices.meter import MODELLED, MeterInfo, Reading
from ecoshare.devices.power_model import PowerModel


class ModelMeter:
    """Joules that a device would spend on what the jobs did, by a model."""

    def __init__(self, model: PowerModel, scope: str, busy_s: Callable[[], float], why: str) -> None:
        """A meter that counts from now on.

        Args:
            scope: `gpu` or `cpu`.
            busy_s: The jobs' busy time so far: core-seconds, or seconds of a GPU held; never less than before.
            why: What keeps a real meter from being read.
        """
        self._model, self._scope, self._busy_s, self._why = model, scope, busy_s, why
        self._began_s = time.monotonic()

    @property
    def info(self) -> MeterInfo:
        """What it computes."""
        return MeterInfo("model", MODELLED, self._scope, f"{self._model.source}; {self._why}", 0.0)

    def read(self) -> Reading:
        """Idle power since the beginning, and what the jobs' work adds to it."""
        at_s = time.monotonic()
        return Reading(at_s, self._model.idle_j(at_s - self._began_s) + self._model.active_j(self._busy_s()))
