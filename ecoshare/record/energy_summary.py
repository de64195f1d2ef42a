"""Energy of a run and of its jobs, as the summary has it."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.record.energy_account import EnergyAccount
from ecoshare.values.joules import ATTRIBUTED, MEASURED


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """Energy of the device of a run.

    Attributes:
        source: `measured` by an energy counter, or `modelled`.
        scope: `gpu` or `cpu`.
        standard_error_j: Error (J) from the counter's coarseness in time; None for a model.
        meter: Name of the meter.
        about: One line about the meter.
        covered: Part of the run's time with known joules, 0 to 1.
        faults: Reasons why `covered` is not 1.
    """

    value_j: float
    source: str
    scope: str
    standard_error_j: float | None = None
    meter: str = ""
    about: str = ""
    covered: float = 1.0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobEnergy:
    """Energy of a job beyond idle, over all its attempts.

    Attributes:
        source: `attributed` if it is split from a measurement, or `modelled`.
        standard_error_j: Standard error (J); None for a model.
    """

    value_j: float
    source: str
    standard_error_j: float | None = None


def device_energy(account: EnergyAccount) -> DeviceEnergy | None:
    """Energy of the device; None if it is not known."""
    if account.energy is None or account.session is None:
        return None
    return DeviceEnergy(
        value_j=account.energy.value_j,
        source=account.session.source,
        scope=account.session.scope,
        standard_error_j=account.energy.standard_error_j if account.session.source == MEASURED else None,
        meter=account.session.meter,
        about=account.session.about,
        covered=account.covered,
        faults=tuple(account.faults),
    )


def job_energy(job: str, account: EnergyAccount) -> JobEnergy | None:
    """Energy of a job; None if it is not known. A share of a measurement is `attributed`, not `measured`."""
    own = account.jobs.get(job)
    if own is None or account.session is None:
        return None
    measured = account.session.source == MEASURED
    return JobEnergy(
        own.value_j, ATTRIBUTED if measured else account.session.source, own.standard_error_j if measured else None
    )
