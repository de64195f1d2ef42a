"""Savings of settings: the ratio of E at a setting to E at the default setting.

E is `values.joules.relative_energy`, as in the score of a search (`advisers/setting_evaluation.py`). For settings that
were not tried, the search predicts E with `energy` of `tuner/objective.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ecoshare.record.packing_timeline import PackingPeriod, PackingTimeline
from ecoshare.values.class_profile import Solo
from ecoshare.values.joules import relative_energy
from ecoshare.values.measurement import Measurement, MeasurementStatus
from ecoshare.values.packing import Packing
from ecoshare.values.setting import AS_FOUND, Setting

_TELLING = frozenset({MeasurementStatus.MEASURED, MeasurementStatus.CENSORED})
"""Status of measurements in which watts and counted iterations are those of the setting."""

Ratios = dict[tuple[Packing, Setting], float]
"""Ratio of a packing's E at a setting to its E at the default setting."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Unit of work for a packing.

    Attributes:
        worths: Work of one iteration of each class: its joules alone. If not all are known, 1 / rate of the class at
            the default setting, so that each job does equal work a second.
        default: Joules that a unit of work takes at the default setting.
    """

    worths: dict[str, float]
    default: float

    def work(self, classes: Mapping[str, str], iterations: Mapping[str, float]) -> float:
        """Work of the given iterations of each job; `classes` maps jobs to classes."""
        worths = {job: self.worths.get(name, 0.0) for job, name in classes.items()}
        return math.fsum(worths[job] * count for job, count in iterations.items() if job in worths)


def measured_scales(timeline: PackingTimeline) -> dict[Packing, Scale]:
    """Scale of each packing from its measurements at the default setting."""
    found: dict[Packing, Scale] = {}
    for packing, own in _measurements(timeline).items():
        at_default = [(stretch, found) for stretch, found in own if found.setting == AS_FOUND]
        scale = Scale(_worths(at_default, timeline.solos), 0.0)
        energies = [each for stretch, found in at_default if (each := _energy(stretch, found, scale)) is not None]
        if energies:
            found[packing] = replace(scale, default=fmean(energies))
    return found


def expected_scales(timeline: PackingTimeline) -> dict[Packing, Scale]:
    """Scale of each packing from its forecast; for a lone job, from its class measured alone."""
    found: dict[Packing, Scale] = {}
    for stretch in timeline.stretches:
        alone_j = {name: _iteration_j(timeline.solos.get(name)) for name in stretch.classes.values()}
        worths = {name: value for name, value in alone_j.items() if value is not None}
        if len(worths) < len(alone_j):
            continue
        if len(stretch.classes) == 1:
            found[stretch.packing] = Scale(worths, 1.0)
        elif stretch.expected and stretch.expected_w is not None:
            powers_w = {job: timeline.solos[name].power_w or 0.0 for job, name in stretch.classes.items()}
            alone_w = math.fsum(speed * powers_w[job] for job, speed in stretch.expected.items())
            found[stretch.packing] = Scale(worths, stretch.expected_w / alone_w)
    return found


def _measurements(timeline: PackingTimeline) -> dict[Packing, list[tuple[PackingPeriod, Measurement]]]:
    """Measurements with known watts and valid iteration counts, for each packing."""
    found: dict[Packing, list[tuple[PackingPeriod, Measurement]]] = {}
    for stretch in timeline.stretches:
        for _, each in stretch.measurements:
            if each.status in _TELLING and each.power_w is not None:
                found.setdefault(stretch.packing, []).append((stretch, each))
    return found


def _energy(stretch: PackingPeriod, found: Measurement, scale: Scale) -> float | None:
    """Joules that a unit of work took in a measurement; None if a job made no progress or watts are not known."""
    if found.power_w is None or not found.rates or min(found.rates.values()) <= 0.0:
        return None
    worths = {job: scale.worths.get(name, 0.0) for job, name in stretch.classes.items()}
    return relative_energy(found.power_w, [(worths[job], rate) for job, rate in found.rates.items() if job in worths])


def ratios(timeline: PackingTimeline) -> Ratios:
    """Measured ratio of E to E at the default setting, for each packing and each tried setting."""
    scales = measured_scales(timeline)
    energies: dict[tuple[Packing, Setting], list[float]] = {}
    for packing, own in _measurements(timeline).items():
        for stretch, found in own:
            scale = scales.get(packing)
            if scale is not None and (energy := _energy(stretch, found, scale)) is not None:
                energies.setdefault((packing, found.setting), []).append(energy / scale.default)
    return {key: fmean(values) for key, values in energies.items()}


def _worths(at_default: Sequence[tuple[PackingPeriod, Measurement]], solos: Mapping[str, Solo]) -> dict[str, float]:
    """Work of one iteration of each class; see `Scale.worths`."""
    rates: dict[str, list[float]] = {}
    for stretch, found in at_default:
        for job, rate in found.rates.items():
            rates.setdefault(stretch.classes[job], []).append(rate)
    alone = {name: _iteration_j(solos.get(name)) for name in rates}
    known = {name: value for name, value in alone.items() if value is not None}
    if len(known) == len(rates):
        return known
    return {name: 1.0 / fmean(values) for name, values in rates.items() if fmean(values) > 0.0}


def _iteration_j(solo: Solo | None) -> float | None:
    if solo is None or solo.power_w is None or solo.iteration_s is None:
        return None
    return solo.power_w * solo.iteration_s
