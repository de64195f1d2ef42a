"""Energy of a run, of its devices and of its jobs, as the summary has it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from ecoshare.base.joules import ATTRIBUTED, MEASURED, MODELLED
from ecoshare.record.accounts.energy_account import EnergyAccount
from ecoshare.record.accounts.run_energy import RunEnergy

_KEY = "key"


def named(key: str) -> Mapping[str, str]:
    """Metadata of a dataclass field that has another name in JSON, such as `class`."""
    return MappingProxyType({_KEY: key})


def as_plain(value: Any) -> Any:
    """The value as JSON has it: a dataclass becomes an object with its fields in order, a tuple becomes a list.

    A dataclass with a method `as_dict` is what that returns.
    """
    if is_dataclass(value):
        kind: Any = type(value)
        if (own := getattr(value, "as_dict", None)) is not None:
            return own()
        return {key: as_plain(getattr(value, name)) for name, key in _names(kind)}
    if isinstance(value, tuple | list):
        return [as_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    return value


@cache
def _names(kind: type[Any]) -> list[tuple[str, str]]:
    return [(each.name, each.metadata.get(_KEY, each.name)) for each in fields(kind)]


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """Energy of a device of a run, or of all its devices together.

    Attributes:
        source: `measured` by an energy counter, or `modelled`. A sum is measured if all its parts are.
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


def run_energy(energy: RunEnergy) -> DeviceEnergy | None:
    """Energy of all devices together; None if that of none is known."""
    parts = [found for each in energy.devices.values() if (found := device_energy(each)) is not None]
    if len(energy.devices) == 1 or not parts:
        return parts[0] if parts else None
    errors_j = [part.standard_error_j for part in parts if part.standard_error_j is not None]
    is_measured = all(part.source == MEASURED for part in parts)
    return DeviceEnergy(
        value_j=math.fsum(part.value_j for part in parts),
        source=MEASURED if is_measured else MODELLED,
        scope=parts[0].scope,
        standard_error_j=math.hypot(*errors_j) if is_measured else None,
        meter=_each_once(part.meter for part in parts),
        about=_each_once(part.about for part in parts),
        covered=math.fsum(part.covered for part in parts) / len(energy.devices),
        faults=energy.faults,
    )


def _each_once(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words))


def job_energy(job: str, energy: RunEnergy) -> JobEnergy | None:
    """Energy of a job; None if it is not known. A share of a measurement is `attributed`, not `measured`."""
    own = energy.job(job)
    sources = {each.session.source for each in energy.devices.values() if job in each.jobs and each.session is not None}
    if own is None or not sources:
        return None
    measured = sources == {MEASURED}
    return JobEnergy(own.value_j, ATTRIBUTED if measured else MODELLED, own.standard_error_j if measured else None)
