"""What earlier searches on a device say of a packing that is new: the prior of its search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ecoshare.advisers.setting_adviser import PackingSearch
from ecoshare.advisers.setting_evaluation import PackedJob, observable
from ecoshare.core.events import Packing
from tuner import Evaluation, EvaluationStatus, Prior, Setting, Space, transferred
from tuner.objective import POWER

_FEWEST = 2
"""Settings at which a class was tried: one alone says nothing of how it responds."""
_TIME = "time_s"


@dataclass(frozen=True, slots=True)
class Earlier:
    """A job class that was tuned alone.

    Attributes:
        trials: Setting, watts, seconds an iteration, and whether the trial was stopped early.
    """

    job_class: str
    trials: Sequence[tuple[Setting, float, float, bool]]


def tuned_alone(searches: Mapping[Packing, PackingSearch]) -> list[Earlier]:
    """What an adviser's own searches have shown of classes alone; those under way too, as far as they are."""
    found = []
    for packing, own in searches.items():
        classes = [job_class for lane in packing for job_class in lane]
        if len(classes) > 1 or own.search is None:
            continue
        trials = [
            (each.requested, each.power_w, time_s, each.status is EvaluationStatus.CENSORED)
            for each in own.search.trials
            if each.power_w is not None and each.status in (EvaluationStatus.MEASURED, EvaluationStatus.CENSORED)
            for time_s in each.times_s.values()
        ]
        found.append(Earlier(classes[0], trials))
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
    """The prior of a packing, in one lane or several; None where nothing is known that helps.

    Which of it is told by the jobs' shares of the time: of those that take turns in one lane they add up to 1.

    Args:
        classes: Of the jobs, by name.
        earlier: On this device. Trials at settings that are not in the space are left out.
        default_s: By the name of a job, seconds an iteration at the default setting in this packing: with those alone
            they tell how much its neighbours slow it down. Where they are missing that may be anything.
    """
    own: dict[str, int] = {}
    known: list[list[Evaluation]] = []
    alone_s = {job.name: job.alone_s for job in jobs if job.alone_s is not None}
    for each in earlier:
        trials = _trials(space, each)
        at_default_s = [
            trial.observed[_TIME]
            for trial in trials
            if trial.status is EvaluationStatus.MEASURED and trial.setting == dict(default)
        ]
        if len({space.index(trial.setting) for trial in trials}) < _FEWEST or not at_default_s:
            continue
        for job in jobs:
            if classes[job.name] == each.job_class:
                own[observable(job.name)] = len(known)
                alone_s[job.name] = math.exp(fmean(map(math.log, at_default_s)))
        known.append(trials)
    if not known:
        return None
    slowdowns = {
        observable(name): packed_s / alone_s[name] for name, packed_s in (default_s or {}).items() if name in alone_s
    }
    shares = {observable(job.name): job.share for job in jobs}
    return transferred(space, list(shares), default, known, own, seed, shares, slowdowns)


def _trials(space: Space, earlier: Earlier) -> list[Evaluation]:
    """Those at settings of the space."""
    return [
        Evaluation(
            dict(setting),
            {POWER: power_w, _TIME: time_s},
            EvaluationStatus.CENSORED if stopped else EvaluationStatus.MEASURED,
        )
        for setting, power_w, time_s, stopped in earlier.trials
        if _is_in(space, setting)
    ]


def _is_in(space: Space, setting: Setting) -> bool:
    try:
        space.index(setting)
    except KeyError:
        return False
    return True
