"""Summary of the packings that ran: predicted, measured and observed speeds and watts, and how each packing ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import AS_FOUND, Packing
from ecoshare.record.accounts.run_energy import DeviceSpan, RunEnergy
from ecoshare.record.packing_record import PackingEnding
from ecoshare.record.packing_timeline import OBSERVED_S, PackingPeriod, PackingTimeline
from ecoshare.record.results.costs_and_savings import Ratios, all_spent_j, ratios
from ecoshare.record.setting_history import Values


@dataclass(frozen=True, slots=True)
class PackingSpeeds:
    """Relative speed of each class (rate in the packing / rate alone), and power (W) of the device."""

    speeds: dict[str, float] = field(default_factory=dict)
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedSpeeds:
    """Speeds and power over the whole time of a packing.

    Attributes:
        speeds: Relative speed of each class, from the progress of its jobs at the default setting.
        power_w: Mean power (W) of the device.
        missing: Reason for each class without a speed: `too short`, `no profile` or `evaluated`.
    """

    speeds: dict[str, float] = field(default_factory=dict)
    power_w: float | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackingSummary:
    """Packing that ran on a device; a value that is not known is None.

    Attributes:
        classes: Job classes of each lane that had any.
        jobs: All jobs that were ever in it.
        from_s: Time (s) at which it first began.
        to_s: Time (s) at which it last ended; None while it goes on.
        duration_s: Time (s) for which it ran in all.
        energy_j: Joules of the device in that time.
        predicted: Last forecast before it was measured; None under a policy without forecasts.
        measured: Means over the measurements at the default setting.
        observed: Means over the whole time.
        settings_tried: Number of settings that were tried, other than the default.
        setting: Best setting found, here or in an earlier run; empty for the default, None if none was searched.
        energy_ratio: Ratio of E at that setting to E at the default setting.
        verdict: `undone`, `kept` or `ended`; None for a job alone that was not measured.
    """

    device: str
    classes: Packing
    jobs: tuple[str, ...]
    from_s: float
    to_s: float | None = None
    duration_s: float = 0.0
    energy_j: float | None = None
    predicted: PackingSpeeds | None = None
    measured: PackingSpeeds | None = None
    observed: ObservedSpeeds = field(default_factory=ObservedSpeeds)
    settings_tried: int = 0
    setting: Values | None = None
    energy_ratio: float | None = None
    verdict: str | None = None


def packings(timeline: PackingTimeline, energy: RunEnergy, end_s: float) -> list[PackingSummary]:
    """Packings that ran on a device, in order of their first start.

    Args:
        timeline: Packing periods of the run.
        energy: Joules of the run.
        end_s: Last known time (s) of the run.
    """
    own: dict[tuple[str, Packing], list[PackingPeriod]] = {}
    for stretch in timeline.stretches:
        if not stretch.is_passing():
            own.setdefault((stretch.device, stretch.packing), []).append(stretch)
    found = ratios(timeline)
    return [_packing(each, timeline, found, energy, end_s) for each in own.values()]


def _packing(
    own: list[PackingPeriod], timeline: PackingTimeline, found: Ratios, energy: RunEnergy, end_s: float
) -> PackingSummary:
    first, last = own[0], own[-1]
    packing = first.packing
    spans = _spans(own, energy, end_s)
    measurements = [found for stretch in own for _, found in stretch.measurements]
    kept = timeline.kept.get(packing)
    return PackingSummary(
        device=first.device,
        classes=packing,
        jobs=tuple(dict.fromkeys(job for stretch in own for job in stretch.jobs)),
        from_s=first.from_s,
        to_s=last.to_s,
        duration_s=math.fsum(to_s - from_s for _, from_s, to_s in spans),
        energy_j=all_spent_j(spans),
        predicted=_predicted(next((each for each in own if each.measurements), first)),
        measured=_measured(own, timeline.solos),
        observed=_observed(own, timeline.solos, spans),
        settings_tried=len({each.setting for each in measurements if each.setting != AS_FOUND}),
        setting=None if kept is None else dict(kept),
        energy_ratio=None if kept is None else found.get((packing, kept)),
        verdict=_verdict(own, timeline.solos),
    )


def _predicted(stretch: PackingPeriod) -> PackingSpeeds | None:
    if not stretch.expected:
        return None
    speeds = {stretch.classes[job]: speed for job, speed in stretch.expected.items()}
    return PackingSpeeds(speeds, stretch.expected_w)


def _measured(own: Sequence[PackingPeriod], solos: dict[str, Solo]) -> PackingSpeeds | None:
    """Mean speeds and power in measurements at the default setting; None if there are none."""
    speeds: dict[str, list[float]] = {}
    powers_w = []
    for stretch in own:
        for finding in stretch.findings(solos):
            powers_w += [] if finding.power_w is None else [finding.power_w]
            for job, speed in finding.speeds.items():
                speeds.setdefault(stretch.classes[job], []).append(speed)
    if not speeds and not powers_w:
        return None
    means = {name: fmean(values) for name, values in speeds.items()}
    return PackingSpeeds(means, fmean(powers_w) if powers_w else None)


def _observed(own: Sequence[PackingPeriod], solos: dict[str, Solo], spans: Sequence[DeviceSpan]) -> ObservedSpeeds:
    """Mean speeds and power over the whole time of a packing.

    Speeds come from the jobs' progress at the default setting, watts from the meter of the run. `missing` gives, for
    each class without a speed, the reason.
    """
    speeds: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for stretch in own:
        found, why = stretch.observed(solos)
        for job, speed in found.items():
            speeds.setdefault(stretch.classes[job], []).append(speed)
        missing |= {stretch.classes[job]: words for job, words in why.items()}
    duration_s, spent_j = math.fsum(to_s - from_s for _, from_s, to_s in spans), all_spent_j(spans)
    power_w = spent_j / duration_s if spent_j is not None and duration_s >= OBSERVED_S else None
    return ObservedSpeeds(
        {name: fmean(values) for name, values in speeds.items()},
        power_w,
        {name: words for name, words in missing.items() if name not in speeds},
    )


def _verdict(own: Sequence[PackingPeriod], solos: dict[str, Solo]) -> str | None:
    """Verdict on a packing: `undone`, `kept` or `ended`; None for a lone job without measurements."""
    measured = False
    for stretch in own:
        measured = measured or bool(stretch.findings(solos))
        if measured and len(stretch.jobs) > 1 and stretch.ending is PackingEnding.PARTED:
            return "undone"
    if measured:
        return "kept"
    return "ended" if len(own[0].jobs) > 1 else None


def _spans(own: Iterable[PackingPeriod], energy: RunEnergy, end_s: float) -> list[DeviceSpan]:
    return [(energy.of(each.device), each.from_s, end_s if each.to_s is None else each.to_s) for each in own]
