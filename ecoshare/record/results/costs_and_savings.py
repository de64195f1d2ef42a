"""Savings of settings: the ratio of E at a setting to E at the default setting.

E is `base.joules.relative_energy`, as in the score of a search (`knowledge/advisers/setting_search.py`). For settings
that were not tried, the search predicts E with `energy` of `tuner/objective.py`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean

from ecoshare.base.class_profile import Solo
from ecoshare.base.joules import relative_energy
from ecoshare.base.measurement import AS_FOUND, Measurement, MeasurementStatus, Packing, Setting
from ecoshare.knowledge.profile import Profile
from ecoshare.record.accounts.energy_account import EnergyAccount, EnergyInterval
from ecoshare.record.accounts.run_energy import DeviceSpan, RunEnergy
from ecoshare.record.packing_timeline import PackingPeriod, PackingTimeline
from ecoshare.record.results.energy_summary import named
from ecoshare.record.run_history import ProfilingSpan

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


KNOWN = 0.99
"""Part of a time span that must have known joules; the rest is tolerated.

A meter begins a little after the first job, and ends a little early.
"""


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """Cost of a profiling window.

    Attributes:
        to_s: End (s) of the window; None if the run or the job ended in it.
        paused_jobs: Number of jobs that waited meanwhile; None if not known.
        lost_s: Time (s) of the window beyond the work that its job did in it: idle watching, observed iterations, the
            wait for the other jobs to pause. None if not known.
        cost_j: The same in joules.
        error: Reason why the window gave no profile; None if it gave one.
        device: Device that the job had to itself meanwhile.
    """

    job: str
    job_class: str = field(metadata=named("class"))
    from_s: float
    to_s: float | None = None
    paused_jobs: int | None = None
    lost_s: float | None = None
    cost_j: float | None = None
    error: str | None = None
    device: str = ""


def windows(
    spans: Sequence[ProfilingSpan], classes: Mapping[str, str], profiles: Mapping[str, Profile], energy: RunEnergy
) -> list[WindowSummary]:
    """Costs of windows, including windows that were cut off by the end of the run or of the job.

    A profile tells the work in the window that made it, which is the last one of its class. The cost of an earlier
    window is not known.

    Args:
        spans: Windows of the run, in order.
        classes: Class of each job, by name.
        profiles: Profiles made in this run or known before, by class.
        energy: Joules of the run.
    """
    last = {classes[each.job]: each for each in spans if each.to_s is not None and not each.error}
    return [
        _window(each, name, profiles.get(name) if each is last.get(name) else None, energy.of(each.device))
        for each in spans
        for name in (classes[each.job],)
    ]


def _window(span: ProfilingSpan, job_class: str, made: Profile | None, account: EnergyAccount) -> WindowSummary:
    """Cost of a window; `made` is the profile that it gave."""
    if span.to_s is None:
        why = "the run ended, or still goes on, in this window"
        return WindowSummary(span.job, job_class, span.from_s, error=why, device=span.device)
    found = WindowSummary(span.job, job_class, span.from_s, span.to_s, error=span.error or None, device=span.device)
    if made is None:
        return found
    cost_j, in_it_j = None, all_spent_j([(account, span.from_s, span.to_s)])
    if made.energy is not None and in_it_j is not None:
        cost_j = max(0.0, in_it_j - made.energy.power_w * made.window.productive_s)
    lost_s = max(0.0, span.to_s - span.from_s - made.window.productive_s)
    return replace(found, paused_jobs=made.window.paused_jobs, lost_s=lost_s, cost_j=cost_j)


def search_energy_j(found: Sequence[WindowSummary], trials_j: float | None = 0.0) -> float | None:
    """Joules that all windows and measurements cost; None if they are not known.

    Windows with unknown cost are left out. The sum is unknown if `trials_j` is, or if there are windows but no known
    cost of any window or measurement.

    Args:
        found: Windows of the summary.
        trials_j: Joules of settings that were tried and not kept; None if not known.
    """
    known = [window.cost_j for window in found if window.cost_j is not None]
    if trials_j is None or (found and not known and not trials_j):
        return None
    return math.fsum([*known, trials_j])


def within(account: EnergyAccount, from_s: float, to_s: float) -> Iterator[tuple[EnergyInterval, float]]:
    """Yield the intervals that overlap a time span, each with the overlapping part of it, in (0, 1]."""
    first = bisect_right(account.intervals, from_s, key=attrgetter("to_s"))
    for each in account.intervals[first:]:
        if each.from_s >= to_s:
            return
        inside_s = min(each.to_s, to_s) - max(each.from_s, from_s)
        if inside_s > 0.0:
            yield each, inside_s / (each.to_s - each.from_s)


def all_spent_j(spans: Iterable[DeviceSpan]) -> float | None:
    """Joules of devices in all `spans` together; None if `KNOWN` of their time or less has known joules."""
    total_j = covered_s = whole_s = 0.0
    for account, from_s, to_s in spans:
        whole_s += to_s - from_s
        for each, part in within(account, from_s, to_s):
            if each.energy_j is not None:
                total_j += part * each.energy_j
                covered_s += part * (each.to_s - each.from_s)
    return total_j if covered_s > KNOWN * whole_s else None
