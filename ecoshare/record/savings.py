"""What settings save: E, joules spent per joule that the same work costs alone, over that at the default setting.

It is that of `tuner/objective.py`: watts, over iterations weighted by what one takes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ecoshare.core.events import Measurement, MeasurementStatus, Packing, Setting, Solo
from ecoshare.core.setting_selection import DEFAULT
from ecoshare.record.packing_timeline import PackingPeriod, PackingTimeline

_TELLING = frozenset({MeasurementStatus.MEASURED, MeasurementStatus.CENSORED})
"""Trials whose watts and counted iterations are those of their setting."""

Ratios = dict[tuple[Packing, Setting], float]
"""E of a packing at a setting, over its E at the default one."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What the work of a packing is worth.

    Attributes:
        worths: By class, of an iteration: its joules alone; where not all are known, equal parts of the packing.
        default: Joules that a unit of it takes at the default setting.
    """

    worths: dict[str, float]
    default: float

    def work(self, classes: Mapping[str, str], iterations: Mapping[str, float]) -> float:
        """What iterations of jobs of these classes are worth."""
        worths = {job: self.worths.get(name, 0.0) for job, name in classes.items()}
        return math.fsum(worths[job] * count for job, count in iterations.items() if job in worths)


def measured_scales(course: PackingTimeline) -> dict[Packing, Scale]:
    """By packing, what its trials at the default setting tell."""
    found: dict[Packing, Scale] = {}
    for packing, own in _trials(course).items():
        at_default = [(stretch, trial) for stretch, trial in own if trial.setting == DEFAULT]
        scale = Scale(_worths(at_default, course.solos), 0.0)
        energies = [each for stretch, trial in at_default if (each := _energy(stretch, trial, scale)) is not None]
        if energies:
            found[packing] = replace(scale, default=fmean(energies))
    return found


def expected_scales(course: PackingTimeline) -> dict[Packing, Scale]:
    """By packing, what was foreseen of it; of a job alone what its class was measured to take."""
    found: dict[Packing, Scale] = {}
    for stretch in course.stretches:
        alone_j = {name: _iteration_j(course.solos.get(name)) for name in stretch.classes.values()}
        worths = {name: value for name, value in alone_j.items() if value is not None}
        if len(worths) < len(alone_j):
            continue
        if len(stretch.classes) == 1:
            found[stretch.packing] = Scale(worths, 1.0)
        elif stretch.expected and stretch.expected_w is not None:
            powers_w = {job: course.solos[name].power_w or 0.0 for job, name in stretch.classes.items()}
            alone_w = math.fsum(speed * powers_w[job] for job, (speed, _) in stretch.expected.items())
            found[stretch.packing] = Scale(worths, stretch.expected_w / alone_w)
    return found


def _trials(course: PackingTimeline) -> dict[Packing, list[tuple[PackingPeriod, Measurement]]]:
    """By packing, those that tell what they spent and did."""
    found: dict[Packing, list[tuple[PackingPeriod, Measurement]]] = {}
    for stretch in course.stretches:
        for _, trial in stretch.trials:
            if trial.status in _TELLING and trial.power_w is not None:
                found.setdefault(stretch.packing, []).append((stretch, trial))
    return found


def _energy(stretch: PackingPeriod, trial: Measurement, scale: Scale) -> float | None:
    """Joules that a unit of the work takes; None where a job did nothing in it."""
    if trial.power_w is None or not trial.rates or min(trial.rates.values()) <= 0.0:
        return None
    work = scale.work(stretch.classes, trial.rates)
    return trial.power_w / work if work > 0.0 else None


def ratios(course: PackingTimeline) -> Ratios:
    """E of each packing at each setting that was tried, over that at the default, by what its trials have measured."""
    scales = measured_scales(course)
    energies: dict[tuple[Packing, Setting], list[float]] = {}
    for packing, own in _trials(course).items():
        for stretch, trial in own:
            scale = scales.get(packing)
            if scale is not None and (energy := _energy(stretch, trial, scale)) is not None:
                energies.setdefault((packing, trial.setting), []).append(energy / scale.default)
    return {key: fmean(values) for key, values in energies.items()}


def _worths(at_default: Sequence[tuple[PackingPeriod, Measurement]], solos: Mapping[str, Solo]) -> dict[str, float]:
    """By class, what an iteration is worth."""
    rates: dict[str, list[float]] = {}
    for stretch, trial in at_default:
        for job, rate in trial.rates.items():
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
