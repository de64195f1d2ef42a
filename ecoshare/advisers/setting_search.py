"""The search for a setting of one packing: what to try next, what came of it, when to stop.

::

    next() ──► a setting ──► (somebody applies and measures it, or looks it up) ──► told(observed, status)
      ▲                                                                                │
      └────────────────────────────────────────────────────────────────────────────────┘

The tuner chooses by what it believes; whatever is shown of a trial is by its own measured numbers against those of the
measured default, so that anybody can check it. Nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean
from typing import Any

from ecoshare.advisers.advice import TUNING_LIMIT
from ecoshare.advisers.setting_evaluation import MeasuredRates, PackedJob, SettingEvaluator, SettingScore, numbers
from tuner import ConstrainedTuner, EvaluationStatus, Prior, Setting, Space

BUDGET = 20
"""Trials, where nobody says how many. Most searches end by themselves before."""
LITTLE_GAIN = 0.01
"""A search ends when two trials in a row leave less than this part of the objective to be expected of the next one."""
_LEAST_TRIALS = 3
_MOST_REPEATS = 2
_SURE = 0.9
"""How likely the next trial must be to keep the limits where the last one broke one."""


class SearchEnding(Enum):
    """Why a search has ended, in words."""

    BUDGET = "the budget is used up"
    LITTLE_GAIN = f"another trial was expected to gain less than {100 * LITTLE_GAIN:g} %"
    NOTHING_LEFT = "every setting has been tried"
    NO_DEFAULT = "the default setting could not be measured, and everything is relative to it"


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """One trial as it was told.

    Attributes:
        number: From 1.
        power_w: None where nothing was measured.
        times_s: Of a trial that was stopped early: at least so much.
        judged: By its own numbers; None unless it was measured, and the default before it.
        interference: Also of a trial that was stopped early: at least so much.
        feasible: None where it is not known.
        best: Whether its setting was the best so far after it.
    """

    number: int
    requested: Setting
    status: EvaluationStatus
    power_w: float | None = None
    times_s: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    judged: SettingScore | None = None
    interference: Mapping[str, float] = field(default_factory=dict)
    feasible: bool | None = None
    best: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data under the names of a trial's record, but for what only its measurer knows."""
        return {
            "number": self.number,
            "requested": dict(self.requested),
            "status": self.status.value,
            "power_w": self.power_w,
            "times": dict(self.times_s),
            "energy": None if self.judged is None else self.judged.energy,
            "interference": dict(self.interference),
            "feasible": self.feasible,
            "best": self.best,
        }


class SettingSearch:
    """Chooses the trials of a packing, and keeps what came of them.

    Attributes:
        trials: In order.
        ending: Why it has ended; None while it goes on.
    """

    def __init__(
        self,
        space: Space,
        default: Setting,
        jobs: Sequence[PackedJob],
        objective: str = "energy",
        tuning_limit: float = TUNING_LIMIT,
        budget: int = BUDGET,
        seed: int = 0,
        prior: Prior | None = None,
    ) -> None:
        """A search that has tried nothing.

        Args:
            objective: `energy`, `edp`, `jct` or `makespan`.
            budget: Most trials; those that are repeated or fail count.
            prior: Of `power_w` and `yardstick.observable(name)` of each job; else the physical model's.

        Raises:
            ValueError: As `SettingEvaluator` and `ConstrainedTuner` say, or there is no trial in the budget.
        """
        if budget < 1:
            raise ValueError(f"a budget of {budget} trials: expected at least 1")
        self.yardstick = SettingEvaluator(jobs, objective, tuning_limit)
        self.space, self.default, self.objective, self.budget = space, dict(default), objective, budget
        self.trials: list[TriedSetting] = []
        self.ending: SearchEnding | None = None
        self._tuner = ConstrainedTuner(space, self.yardstick.objective, self.yardstick.limits, default, prior, seed)
        self._asked: Setting | None = None
        self._last: Setting = self.default
        self._repeats = self._low_gains = self._carried = 0
        self._closed: set[int] = set()

    def next(self) -> Setting | None:
        """The setting to try, the same one until it is told; None where the search has ended."""
        if self._asked is None:
            self.ending = self._over()
            if self.ending is None:
                self._asked = self._last if self._repeats else self._tuner.ask(_SURE if self._is_over() else 0.0)
        return None if self._asked is None else dict(self._asked)

    def told(
        self, observed: MeasuredRates | None, status: EvaluationStatus = EvaluationStatus.MEASURED
    ) -> TriedSetting:
        """Take note of what came of the setting that `next` gave.

        Args:
            observed: None where nothing was measured. Of a trial that was stopped early, its power and the times that
                are known to be at least so long.

        Raises:
            RuntimeError: Nothing was asked.
            ValueError: A job's time is missing from a measured trial, or a number is not positive.
        """
        if self._asked is None:
            raise RuntimeError("nothing was asked for: next() comes before told()")
        setting, values = self._asked, self._values(observed, status)
        repeats = self._repeats + 1 if status is EvaluationStatus.CONTAMINATED else 0
        given_up = repeats > _MOST_REPEATS
        # One that is always disturbed is for the tuner one that does not work: it must not ask for it again.
        self._tuner.tell(setting, values, EvaluationStatus.FAILED if given_up else status)
        self._asked, self._last, self._repeats = None, setting, 0 if given_up else repeats
        if not self._repeats:
            self._closed.add(self.space.index(setting))
            self._low_gains = self._low_gains + 1 if self._tuner.expected_gain < LITTLE_GAIN else 0
        return self._keep(setting, observed, status)

    def carry(self, setting: Setting, observed: MeasuredRates) -> TriedSetting:
        """Take over what was measured before this search, such as by one with more knobs: the default first.

        It is a trial like any other, but takes nothing of the budget.

        Raises:
            ValueError: The setting is not in the space, a job's time is missing, or a number is not positive.
        """
        self._tuner.tell(setting, self._values(observed, EvaluationStatus.MEASURED))
        self._closed.add(self.space.index(setting))
        self._carried += 1
        return self._keep(dict(setting), observed, EvaluationStatus.MEASURED)

    def _is_over(self) -> bool:
        """Whether the last trial broke a limit: no job should be too slow for two in a row."""
        return bool(self.trials) and self.trials[-1].feasible is False

    @property
    def violations(self) -> int:
        """Trials that broke the tuning limit, by what was measured."""
        return sum(trial.feasible is False for trial in self.trials)

    @property
    def best(self) -> Setting | None:
        """The best setting by all that was measured, if it kept the limit itself; else the best of those that did.

        The tuner weighs the noise of a number at the limit against its neighbours; what nobody has measured as feasible
        is not chosen whatever it believes, nor what was worse than the default. None where no setting kept the limit.
        """
        places = {self.space.index(trial.requested) for trial in self.trials if trial.judged is not None}
        judged = {place: self.judged(self.space.settings[place]) for place in places}
        kept = [(each.objective, place) for place, each in judged.items() if each is not None and each.feasible]
        if not kept:
            return None
        believed, worth = self._tuner.best(), {place: objective for objective, place in kept}
        default = worth.get(self.space.index(self.default), math.inf)
        if believed is not None and worth.get(place := self.space.index(believed.setting), math.inf) <= default:
            return dict(self.space.settings[place])
        return dict(self.space.settings[min(kept)[1]])

    def judged(self, setting: Setting) -> SettingScore | None:
        """What all measured trials of a setting say together; None where it, or the default, has none."""
        now, default = self._mean(setting), self._mean(self.default)
        return None if now is None or default is None else self.yardstick.judge(now, default)

    @property
    def saved(self) -> float | None:
        """Part of the default's energy that the best setting saves; None where nothing is feasible."""
        best = self.best
        judged, default = None if best is None else self.judged(best), self.judged(self.default)
        return None if judged is None or default is None else 1.0 - judged.energy / default.energy

    def as_dict(self, units: Mapping[str, str]) -> dict[str, Any]:
        """Plain data under the names of a tuned result, but for what only who measures knows.

        Args:
            units: By knob; those that are left out have none.
        """
        knobs = [
            {
                "name": knob.name,
                "unit": units.get(knob.name, ""),
                "count": len(knob.values) + len(knob.special),
                "lowest": min(knob.values),
                "highest": max(knob.values),
            }
            for knob in self.space.knobs
        ]
        return {
            "objective": self.objective,
            "tuning_limit": self.yardstick.tuning_limit,
            "knobs": knobs,
            "default": dict(self.default),
            "best": self.best,
            "saved_against_default": self.saved,
            "violations": self.violations,
        }

    def _over(self) -> SearchEnding | None:
        if len(self.trials) - self._carried >= self.budget:
            return SearchEnding.BUDGET
        if self._repeats:
            return None
        if self.space.index(self.default) in self._closed and self._mean(self.default) is None:
            return SearchEnding.NO_DEFAULT
        if len(self._closed) == len(self.space):
            return SearchEnding.NOTHING_LEFT
        if len(self.trials) >= _LEAST_TRIALS and self._low_gains >= 2:
            return SearchEnding.LITTLE_GAIN
        return None

    def _values(self, observed: MeasuredRates | None, status: EvaluationStatus) -> dict[str, float]:
        """The numbers for the tuner."""
        if observed is None:
            if status is EvaluationStatus.MEASURED:
                raise ValueError("a measured trial has numbers")
            return {}
        names = {job.name for job in self.yardstick.jobs}
        wrong = set(observed.times_s) - names or (
            names - set(observed.times_s) if status is EvaluationStatus.MEASURED else set()
        )
        if wrong:
            raise ValueError(f"{', '.join(sorted(wrong))}: expected a time of each job, and of no other")
        return numbers(observed)

    def _keep(self, setting: Setting, observed: MeasuredRates | None, status: EvaluationStatus) -> TriedSetting:
        self.trials.append(TriedSetting(len(self.trials) + 1, setting, status))
        if observed is not None:
            self.trials[-1] = replace(
                self.trials[-1],
                power_w=observed.power_w,
                times_s=dict(observed.times_s),
                rates=dict(observed.rates),
            )
            self.trials[-1] = self._judged(self.trials[-1], observed)
        return self.trials[-1]

    def _judged(self, trial: TriedSetting, observed: MeasuredRates) -> TriedSetting:
        default = self._mean(self.default)
        if default is None or trial.status not in (EvaluationStatus.MEASURED, EvaluationStatus.CENSORED):
            return trial
        interference = self.yardstick.interference(observed, default)
        kept = self.yardstick.keeps(interference)
        if trial.status is EvaluationStatus.CENSORED:
            return replace(trial, interference=interference, feasible=None if kept else False)
        judged = self.yardstick.judge(observed, default)
        self.trials[-1] = trial = replace(trial, judged=judged, interference=interference, feasible=kept)
        return replace(trial, best=self.best == trial.requested)

    def _mean(self, setting: Setting) -> MeasuredRates | None:
        """Geometric means of its measured trials; None where there are none."""
        own = [
            MeasuredRates(trial.power_w, trial.times_s, trial.rates)
            for trial in self.trials
            if trial.status is EvaluationStatus.MEASURED and trial.power_w is not None and trial.requested == setting
        ]
        if not own:
            return None
        times = {job.name: _middle([each.times_s[job.name] for each in own]) for job in self.yardstick.jobs}
        names = [job.name for job in self.yardstick.jobs if all(job.name in each.rates for each in own)]
        rates = {name: _middle([each.rates[name] for each in own]) for name in names}
        return MeasuredRates(_middle([each.power_w for each in own]), times, rates)


def _middle(values: Sequence[float]) -> float:
    # One number as it is: its logarithm's exponential may be another.
    return values[0] if len(values) == 1 else math.exp(fmean(math.log(value) for value in values))
