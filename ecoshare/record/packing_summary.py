"""Summary of the packings that ran: predicted, measured and observed speeds and watts, and how each packing ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from ecoshare.core.setting_selection import DEFAULT
from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.packing_timeline import OBSERVED_S, PackingEnding, PackingPeriod, PackingTimeline
from ecoshare.record.savings import Ratios, ratios
from ecoshare.record.window_costs import all_spent_j
from ecoshare.values.class_profile import Solo
from ecoshare.values.packing import Packing


def packings(course: PackingTimeline, account: EnergyAccount, end_s: float) -> list[dict[str, Any]]:
    """Packings that ran on a device, in order of their first start, as plain data; see docs/summary.md.

    Args:
        course: Packing periods of the run.
        account: Energy account of the run.
        end_s: Last known time (s) of the run.
    """
    own: dict[tuple[str, Packing], list[PackingPeriod]] = {}
    for stretch in course.stretches:
        if not stretch.is_passing():
            own.setdefault((stretch.device, stretch.packing), []).append(stretch)
    found = ratios(course)
    return [_packing(each, course, found, account, end_s) for each in own.values()]


def _packing(
    own: list[PackingPeriod], course: PackingTimeline, found: Ratios, account: EnergyAccount, end_s: float
) -> dict[str, Any]:
    first, last = own[0], own[-1]
    packing = first.packing
    spans = _spans(own, end_s)
    trials = [trial for stretch in own for _, trial in stretch.trials]
    kept = course.kept.get(packing)
    return {
        "device": first.device,
        "classes": [list(lane) for lane in packing],
        "jobs": list(dict.fromkeys(job for stretch in own for job in stretch.jobs)),
        "from_s": first.from_s,
        "to_s": last.to_s,
        "duration_s": math.fsum(to_s - from_s for from_s, to_s in spans),
        "energy_j": all_spent_j(account, spans),
        "predicted": _predicted(next((each for each in own if each.trials), first)),
        "measured": _measured(own, course.solos),
        "observed": _observed(own, course.solos, account, spans),
        "settings_tried": len({each.setting for each in trials if each.setting != DEFAULT}),
        "setting": None if kept is None else dict(kept),
        "energy_ratio": None if kept is None else found.get((packing, kept)),
        "verdict": _verdict(own, course.solos),
    }


def _predicted(stretch: PackingPeriod) -> dict[str, Any] | None:
    if not stretch.expected:
        return None
    speeds = {stretch.classes[job]: speed for job, (speed, _) in stretch.expected.items()}
    return {"speeds": speeds, "power_w": stretch.expected_w}


def _measured(own: Sequence[PackingPeriod], solos: dict[str, Solo]) -> dict[str, Any] | None:
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
    return {"speeds": means, "power_w": fmean(powers_w) if powers_w else None}


def _observed(
    own: Sequence[PackingPeriod], solos: dict[str, Solo], account: EnergyAccount, spans: Sequence[tuple[float, float]]
) -> dict[str, Any]:
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
    duration_s, spent_j = math.fsum(to_s - from_s for from_s, to_s in spans), all_spent_j(account, spans)
    power_w = spent_j / duration_s if spent_j is not None and duration_s >= OBSERVED_S else None
    return {
        "speeds": {name: fmean(values) for name, values in speeds.items()},
        "power_w": power_w,
        "missing": {name: words for name, words in missing.items() if name not in speeds},
    }


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


def _spans(own: Iterable[PackingPeriod], end_s: float) -> list[tuple[float, float]]:
    return [(each.from_s, end_s if each.to_s is None else each.to_s) for each in own]
