"""Joules of a recorded run over time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.run_energy import RunEnergy


class RisingSum:
    """Sum of joules that are spread evenly over intervals of time."""

    def __init__(self) -> None:
        """Sum without any interval."""
        self._from_s, self._to_s = array("d"), array("d")
        self._before_j = array("d")
        self._total_j = 0.0

    def add(self, from_s: float, to_s: float, energy_j: float) -> None:
        """Add an interval (s), which does not begin before the one that was added last."""
        self._from_s.append(from_s)
        self._to_s.append(to_s)
        self._before_j.append(self._total_j)
        self._total_j += energy_j

    def at(self, at_s: float) -> float | None:
        """Joules up to this time (s); None before the first interval."""
        place = bisect_right(self._from_s, at_s) - 1
        if place < 0:
            return None
        return self._before_j[place] + self._spent_j(place) * self._share(place, at_s)

    def rate_w(self, at_s: float) -> float | None:
        """Mean power (W) of the interval that this time (s) lies in; None outside of all intervals."""
        place = bisect_right(self._from_s, at_s) - 1
        if place < 0 or at_s > self._to_s[place]:
            return None
        return self._spent_j(place) / (self._to_s[place] - self._from_s[place])

    def _spent_j(self, place: int) -> float:
        after_j = self._before_j[place + 1] if place + 1 < len(self._before_j) else self._total_j
        return after_j - self._before_j[place]

    def _share(self, place: int, at_s: float) -> float:
        length_s = self._to_s[place] - self._from_s[place]
        return min(1.0, (at_s - self._from_s[place]) / length_s) if length_s > 0.0 else 1.0


class RecordedEnergy:
    """Joules of the devices and jobs of a recorded run at any moment.

    Attributes:
        devices: Joules of each device, by its name. A device without known joules is left out.
    """

    def __init__(self, energy: RunEnergy) -> None:
        """Joules of a run with these accounts."""
        self.devices: dict[str, RisingSum] = {}
        self._jobs: dict[str, list[RisingSum]] = defaultdict(list)
        for name, own in energy.devices.items():
            device, jobs = _sums(own)
            if own.energy is not None:
                self.devices[name] = device
            for job, part in jobs.items():
                self._jobs[job].append(part)

    def job(self, name: str, at_s: float) -> float | None:
        """Joules of a job beyond idle, on all devices, up to this time (s); None if they are not known."""
        parts = [part for each in self._jobs.get(name, ()) if (part := each.at(at_s)) is not None]
        return sum(parts) if parts else None


def _sums(own: EnergyAccount) -> tuple[RisingSum, Mapping[str, RisingSum]]:
    device, jobs = RisingSum(), defaultdict[str, RisingSum](RisingSum)
    for each in own.intervals:
        if each.energy_j is not None:
            device.add(each.from_s, each.to_s, each.energy_j)
            for job, part_j in each.jobs_j.items():
                jobs[job].add(each.from_s, each.to_s, part_j)
    return device, jobs
