"""Prior of the search for a new packing, from earlier searches on the same device.

A class that was searched alone is known by that search. The times of its jobs in other packings are added. So a setting
that slowed one of them down too much there is not tried again in the next packing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ecoshare.base.measurement import MeasurementStatus, Packing
from ecoshare.knowledge.advisers.setting_adviser import PackingSearch
from ecoshare.knowledge.advisers.setting_search import PackedJob, observable
from tuner import Evaluation, EvaluationStatus, Prior, Setting, Space, transferred
from tuner.objective import POWER

_FEWEST = 2
"""Least number of settings at which a class was measured: one setting shows no response."""
_TIME = "time_s"


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier search of a job class alone.

    Attributes:
        job_class: The class.
        measurements: Measurements: setting, power (W), time of an iteration (s), and whether it was stopped early.
        in_company: Measurements in other packings: setting, and the ratio: time / time at the default there.
    """

    job_class: str
    measurements: Sequence[tuple[Setting, float, float, bool]]
    in_company: Sequence[tuple[Setting, float]] = ()


def tuned_alone(
    searches: Mapping[Packing, PackingSearch], class_of: Callable[[str], str] = lambda name: name
) -> list[Earlier]:
    """Measurements of classes alone from the searches of an adviser, with those of searches under way.

    Args:
        searches: Searches by packing.
        class_of: Function that returns the class of a job, from its name.
    """
    company: dict[str, list[tuple[Setting, float]]] = {}
    for packing, own in searches.items():
        if own.search is not None and sum(map(len, packing)) > 1:
            for each in own.search.measurements:
                if each.found.status is MeasurementStatus.MEASURED:
                    for job, ratio in each.interference.items():
                        company.setdefault(class_of(job), []).append((each.requested, ratio))
    found = []
    for packing, own in searches.items():
        classes = [job_class for lane in packing for job_class in lane]
        if len(classes) > 1 or own.search is None:
            continue
        measurements = [
            (each.requested, each.found.power_w, time_s, each.found.status is MeasurementStatus.CENSORED)
            for each in own.search.measurements
            if each.found.power_w is not None and each.found.status.has_numbers
            for time_s in each.found.times_s.values()
        ]
        found.append(Earlier(classes[0], measurements, company.get(classes[0], ())))
    return found


def prior_from(
    space: Space,
    default: Setting,
    jobs: Sequence[PackedJob],
    classes: Mapping[str, str],
    earlier: Sequence[Earlier],
    seed: int = 0,
    default_s: Mapping[str, float] | None = None,
) -> Prior | None:
    """Prior of a packing in one lane or several; None if no earlier search helps.

    The shares of the jobs tell one lane from several: shares of jobs that take turns in one lane add up to 1.

    Args:
        space: Space of the search.
        default: Default setting.
        jobs: Jobs of the packing.
        classes: Class of each job, by name.
        earlier: Earlier searches on this device. Measurements at settings outside the space are left out.
        seed: Seed of the random samples.
        default_s: Time (s) of an iteration of each job at the default setting in this packing, by name. Compared with
            the time alone, it shows how much the neighbours slow the job down. If it is missing, any slowdown is
            possible.
    """
    own: dict[str, int] = {}
    known: list[list[Evaluation]] = []
    in_company: dict[int, list[tuple[Setting, float]]] = {}
    alone_s = {job.name: job.alone_s for job in jobs if job.alone_s is not None}
    for each in earlier:
        evaluations = _evaluations(space, each)
        at_default_s = [
            each.observed[_TIME]
            for each in evaluations
            if each.status is EvaluationStatus.MEASURED and each.setting == dict(default)
        ]
        if len({space.index(each.setting) for each in evaluations}) < _FEWEST or not at_default_s:
            continue
        for job in jobs:
            if classes[job.name] == each.job_class:
                own[observable(job.name)] = len(known)
                alone_s[job.name] = math.exp(fmean(map(math.log, at_default_s)))
        if ratios := [(setting, ratio) for setting, ratio in each.in_company if _is_in(space, setting)]:
            in_company[len(known)] = ratios
        known.append(evaluations)
    if not known:
        return None
    slowdowns = {
        observable(name): packed_s / alone_s[name] for name, packed_s in (default_s or {}).items() if name in alone_s
    }
    shares = {observable(job.name): job.share for job in jobs}
    return transferred(space, list(shares), default, known, own, seed, shares, slowdowns, in_company)


def _evaluations(space: Space, earlier: Earlier) -> list[Evaluation]:
    """Measurements of an earlier search at settings of the space."""
    return [
        Evaluation(
            dict(setting),
            {POWER: power_w, _TIME: time_s},
            EvaluationStatus.CENSORED if stopped else EvaluationStatus.MEASURED,
        )
        for setting, power_w, time_s, stopped in earlier.measurements
        if _is_in(space, setting)
    ]


def _is_in(space: Space, setting: Setting) -> bool:
    try:
        space.index(setting)
    except KeyError:
        return False
    return True
