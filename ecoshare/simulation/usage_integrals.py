"""Integrals of a simulation over time: energy, busy devices and demand for devices."""

from __future__ import annotations

_MOST_BINS = 512


class UsageIntegrals:
    """Integrals over time, kept up to date at every change.

    Attributes:
        busy: Number of devices at work now.
        demand: Number of devices that all jobs want that have arrived and not ended.
        watts: Power (W) of all devices now.
        busy_s: Device-seconds at work.
        demand_s: Device-seconds wanted.
        energy_j: Energy (J) of all devices.
    """

    def __init__(self, devices: int, idle_w: float) -> None:
        self.busy, self.demand, self.watts = 0, 0.0, idle_w * devices
        self.busy_s = self.demand_s = self.energy_j = 0.0
        self._at_s = 0.0
        self._bin_s, self._bins = 1.0, [0.0]

    def advance(self, now_s: float) -> None:
        """Integrate the present values up to `now_s`."""
        passed_s = now_s - self._at_s
        if passed_s <= 0.0:
            return
        self.busy_s += passed_s * self.busy
        self.demand_s += passed_s * self.demand
        self.energy_j += passed_s * self.watts
        self._fill(now_s)
        self._at_s = now_s

    def work(self, devices: int, watts: float, now_s: float) -> None:
        """Add devices at work and their power (W) from now on; negative values subtract."""
        self.advance(now_s)
        self.busy += devices
        self.watts += watts

    def want(self, devices: float, now_s: float) -> None:
        """Add devices to the demand from now on; a negative number subtracts."""
        self.advance(now_s)
        self.demand += devices

    def utilisation(self) -> tuple[float, list[float]]:
        """Length (s) of a bin, and busy device-seconds in each bin from the beginning."""
        return self._bin_s, list(self._bins)

    def _fill(self, now_s: float) -> None:
        while now_s > self._bin_s * _MOST_BINS:
            self._bin_s *= 2.0
            pairs = self._bins + [0.0] * (len(self._bins) % 2)
            self._bins = [pairs[place] + pairs[place + 1] for place in range(0, len(pairs), 2)]
        from_s = self._at_s
        while from_s < now_s:
            place = int(from_s / self._bin_s)
            to_s = min(now_s, (place + 1) * self._bin_s)
            if place >= len(self._bins):
                self._bins += [0.0] * (place + 1 - len(self._bins))
            self._bins[place] += self.busy * (to_s - from_s)
            from_s = to_s
