"""Joules of a run that goes on: sums so far, which need no more memory the longer it lasts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ecoshare.record.energy_account import EnergyInterval, EnergyRate, SampleSplitter
from ecoshare.record.samples import Idle, Line, Sample, Session
from ecoshare.values.joules import ATTRIBUTED, MEASURED, MODELLED


@dataclass(frozen=True, slots=True)
class LiveReading:
    """A device at its last sample.

    Attributes:
        sample: The last sample.
        power_w: Power (W): as the device reports it, or the mean since the sample before. None if neither is known.
        energy_j: Joules in this session of the run; None if they are not known.
        jobs_j: Joules beyond idle of all its jobs, ended ones included.
        source: `measured` or `modelled`.
    """

    sample: Sample
    power_w: float | None
    energy_j: float | None
    jobs_j: float
    source: str


class _DeviceSums:
    """Sums of one device."""

    def __init__(self, rates: Callable[[str], EnergyRate | None]) -> None:
        self._splitter = SampleSplitter(rates)
        self._settled_j: float | None = None
        self.settled_jobs_j: dict[str, float] = defaultdict(float)
        self._settled_all_jobs_j = 0.0
        self.last: Sample | None = None

    @property
    def source(self) -> str:
        session = self._splitter.session
        return session.source if session is not None else ""

    @property
    def _open(self) -> EnergyInterval | None:
        """Last interval, which the next line may change."""
        return self._splitter.intervals[-1] if self._splitter.intervals else None

    def hear(self, line: Line) -> None:
        if isinstance(line, Idle):
            self._splitter.idle_found(line.power_w)
            return
        self._splitter.add(line)
        if isinstance(line, Sample):
            self.last = line
        for interval in self._splitter.intervals[:-1]:
            if interval.energy_j is not None:
                self._settled_j = (self._settled_j or 0.0) + interval.energy_j
                for job, part_j in interval.jobs_j.items():
                    self.settled_jobs_j[job] += part_j
                    self._settled_all_jobs_j += part_j
        del self._splitter.intervals[:-1]

    def reading(self) -> LiveReading | None:
        if self.last is None:
            return None
        last, power_w, energy_j = self._open, self.last.power_w, self._settled_j
        if last is not None and last.energy_j is not None:
            energy_j = (energy_j or 0.0) + last.energy_j
            if power_w is None and last.to_s == self.last.at_s:
                power_w = last.energy_j / (last.to_s - last.from_s)
        jobs_j = self._settled_all_jobs_j + (sum(last.jobs_j.values()) if last is not None else 0.0)
        return LiveReading(self.last, power_w, energy_j, jobs_j, self.source if energy_j is not None else "")

    def job_j(self, name: str) -> float | None:
        last = self._open
        if name not in self.settled_jobs_j and (last is None or name not in last.jobs_j):
            return None
        return self.settled_jobs_j.get(name, 0.0) + (last.jobs_j.get(name, 0.0) if last is not None else 0.0)


class LiveEnergy:
    """Joules so far of the devices and jobs of a run.

    Idle joules count at the idle power that is known at the time. The summary of a run counts with the last one that
    was watched, so its joules may differ a little.
    """

    def __init__(self, rates: Callable[[str], EnergyRate | None]) -> None:
        """Joules of a run before its first sample.

        Args:
            rates: Returns the rate of a job's class alone, see `energy_account.account`.
        """
        self._rates = rates
        self._devices: dict[str, _DeviceSums] = {}

    def hear(self, line: Line) -> None:
        """Take note of the next session, sample or idle power of any device."""
        if isinstance(line, Session):
            self._devices.setdefault(line.device, _DeviceSums(self._rates))
        self._devices[line.device].hear(line)

    def device(self, name: str) -> LiveReading | None:
        """A device at its last sample; None before the first, and without a meter."""
        sums = self._devices.get(name)
        return sums.reading() if sums is not None else None

    def job(self, name: str) -> tuple[float, str] | None:
        """Joules of a job beyond idle on all devices, with their source (`attributed`, `modelled`); None if unknown."""
        parts = [(part_j, each.source) for each in self._devices.values() if (part_j := each.job_j(name)) is not None]
        if not parts:
            return None
        is_measured = all(source == MEASURED for _, source in parts)
        return sum(part_j for part_j, _ in parts), ATTRIBUTED if is_measured else MODELLED

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the joules of all other jobs."""
        for sums in self._devices.values():
            for name in [name for name in sums.settled_jobs_j if name not in names]:
                del sums.settled_jobs_j[name]
