"""Joules of the processors beside a GPU during one measurement."""

from __future__ import annotations

from ecoshare.devices.meter import Meter, MeterFault, Reading


class ProcessorsInterval:
    """Interval between two readings of the processors' meter, begun and ended with the readings of the GPU's meter.

    Attributes:
        joules: Energy (J) of the interval; None without a meter, before the end, and after a fault.
        power_w: Mean power (W) of the interval; None as for `joules`.
        fault: Reason why the joules are not known although there is a meter; empty otherwise.
    """

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self._first: Reading | None = None
        self.joules: float | None = None
        self.power_w: float | None = None
        self.fault = ""

    def begin(self) -> None:
        """Take the first reading."""
        self._first = self._read()

    def end(self) -> None:
        """Take the last reading."""
        last = self._read()
        if self._first is None or last is None or self.fault:
            return
        spent_j, wall_s = last.energy_j - self._first.energy_j, last.at_s - self._first.at_s
        if spent_j <= 0.0 or wall_s <= 0.0:
            self.fault = "the energy counter of the processors stood still"
            return
        self.joules, self.power_w = spent_j, spent_j / wall_s

    def _read(self) -> Reading | None:
        if self._meter is None:
            return None
        try:
            return self._meter.read()
        except MeterFault as fault:
            self.fault = f"the joules of the processors are not known: {fault}"
            return None
