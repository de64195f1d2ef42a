"""Joules of a whole run: the account of each of its devices, and their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ecoshare.record.energy_account import EnergyAccount, EnergyRate, account
from ecoshare.record.samples import Line, Session, of_device
from ecoshare.values.joules import Energy

DeviceSpan = tuple[EnergyAccount, float, float]
"""Time span of a device: its account, begin (s) and end (s)."""


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """Joules of a run.

    Attributes:
        devices: Account of each device, by its name, in the order of the plan.
    """

    devices: Mapping[str, EnergyAccount] = field(default_factory=dict)

    @classmethod
    def of_lines(cls, names: Iterable[str], lines: list[Line], rates: Callable[[str], EnergyRate | None]) -> RunEnergy:
        """Joules of a run from the lines of its samples.

        Args:
            names: Names of its devices.
            lines: Sessions and samples of all devices; those of each device in order.
            rates: See `account`.
        """
        return cls({name: account(of_device(lines, name), rates) for name in names})

    def of(self, device: str) -> EnergyAccount:
        """Account of one device; empty if the run has no such device."""
        return self.devices.get(device) or EnergyAccount()

    def everywhere(self, from_s: float, to_s: float) -> list[DeviceSpan]:
        """This time span of every device."""
        return [(each, from_s, to_s) for each in self.devices.values()]

    @property
    def session(self) -> Session | None:
        """Session of the first device that has a meter, or a model in its place. None if none has."""
        return next((each.session for each in self.devices.values() if each.session is not None), None)

    @property
    def value_j(self) -> float | None:
        """Joules of all devices, as far as they are known; None if none are."""
        return _sum(each.energy.value_j for each in self.devices.values() if each.energy is not None)

    @property
    def idle_j(self) -> float | None:
        """Part of `value_j` that no job caused; None if it is not known."""
        return _sum(each.idle_j for each in self.devices.values() if each.idle_j is not None)

    @property
    def idle_w(self) -> float | None:
        """Power (W) of all devices at rest; None if that of one is not known."""
        return _sum_of_all([each.idle_w for each in self.devices.values()])

    @property
    def empty_w(self) -> float | None:
        """Power (W) of all GPUs before the first job; None if that of one is not known."""
        return _sum_of_all([each.empty_w for each in self.devices.values()])

    @property
    def faults(self) -> tuple[str, ...]:
        """Reasons why joules are not known, each once; with the device if the run has several."""
        named = len(self.devices) > 1
        return tuple(
            f"{name}: {fault}" if named else fault for name, each in self.devices.items() for fault in each.faults
        )

    def job(self, name: str) -> Energy | None:
        """Energy of a job beyond idle, on all devices; None if it is not known."""
        parts = [each.jobs[name] for each in self.devices.values() if name in each.jobs]
        if not parts:
            return None
        value_j = math.fsum(part.value_j for part in parts)
        return Energy(value_j, math.hypot(*(part.standard_error_j for part in parts)))

    def iterations(self, job: str) -> int:
        """Iterations of a job, training and inference together, in time with known joules."""
        return sum(each.iterations.get(job, 0) for each in self.devices.values())

    def peak_bytes(self, job: str) -> int | None:
        """Largest memory (bytes) of a job in any sample; None if it is not known."""
        return max((each.peak_bytes[job] for each in self.devices.values() if job in each.peak_bytes), default=None)


def _sum_of_all(values: Sequence[float | None]) -> float | None:
    """Sum of values; None if one is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _sum(values: Iterable[float]) -> float | None:
    known = list(values)
    return math.fsum(known) if known else None
