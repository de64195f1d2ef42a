"""Search for a setting of one packing: the next setting to measure, the results, and when to stop.

::

    next() ──► a setting ──► (the caller applies and measures it, or looks it up) ──► told(measurement)
      ▲                                                                                 │
      └─────────────────────────────────────────────────────────────────────────────────┘

The tuner chooses by its beliefs. The score of a measurement compares its own numbers with those of the measured
default, so that a user can check it. Nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean
from typing import Any

from ecoshare.advisers.setting_evaluation import PackedJob, SettingEvaluator, SettingScore, numbers, saved_part
from ecoshare.values.goal import TUNING_LIMIT
from ecoshare.values.measurement import Measurement, MeasurementStatus
from tuner import ConstrainedTuner, EvaluationStatus, Prior, Setting, Space

BUDGET = 20
"""Default of the most measurements of a search. Most searches end earlier by themselves."""
LITTLE_GAIN = 0.01
"""Least expected gain of the next measurement, as a part of the objective. A search ends when the expectation is below
it after two measurements in a row."""
_LEAST_TRIALS = 3
_MOST_REPEATS = 2
_SURE = 0.9
"""Least probability that a setting keeps the limits, to count as sure to keep them."""


class SearchEnding(Enum):
    """Reason why a search has ended, in words."""

    BUDGET = "the budget is used up"
    LITTLE_GAIN = f"another measurement was expected to gain less than {100 * LITTLE_GAIN:g} %"
    NOTHING_LEFT = "every setting has been tried"
    NO_DEFAULT = "the default setting could not be measured, and everything is relative to it"


@dataclass(frozen=True, slots=True)
class JudgedMeasurement:
    """A measurement with the judgement of the search.

    Attributes:
        number: Number of the measurement in the search, from 1.
        requested: Setting that the search asked for, with a value for each of its knobs.
        found: The measurement.
        score: Score by the measurement's own numbers; None unless it and the default before it were measured.
        interference: Time of each job / time at the default setting. Lower bounds if it was stopped early.
        feasible: Whether every job keeps its limit; None if unknown.
        best: Whether the setting was the best one after this measurement.
    """

    number: int
    requested: Setting
    found: Measurement
    score: SettingScore | None = None
    interference: Mapping[str, float] = field(default_factory=dict)
    feasible: bool | None = None
    best: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data under the names in the record, without what only the measuring caller knows."""
        return {
            "number": self.number,
            "requested": dict(self.requested),
            "status": self.found.status.value,
            "power_w": self.found.power_w if self.found.status.has_numbers else None,
            "times": dict(self.found.times_s) if self.found.status.has_numbers else {},
            "energy": None if self.score is None else self.score.energy,
            "interference": dict(self.interference),
            "feasible": self.feasible,
            "best": self.best,
        }


class SettingSearch:
    """Search that chooses the settings to measure for a packing, and keeps the results.

    Attributes:
        yardstick: Evaluator of the measurements.
        space: Settings to choose from.
        default: Default setting.
        objective: Name of the objective.
        budget: Most measurements.
        measurements: Measurements in order, each with its judgement.
        ending: Reason why the search has ended; None while it goes on.
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
        """Search without measurements so far.

        Args:
            space: Settings to choose from.
            default: Default setting.
            jobs: Jobs of the packing.
            objective: `energy`, `edp`, `jct` or `makespan`.
            tuning_limit: Time of an iteration at a setting / time at the default setting, at most.
            budget: Most measurements. Repeated and failed ones count.
            seed: Seed of the tuner.
            prior: Prior of `power_w` and of `setting_evaluation.observable(name)` of each job; None for the prior of
                the physical model.

        Raises:
            ValueError: `SettingEvaluator` or `ConstrainedTuner` refuses an argument, or the budget is below 1.
        """
        if budget < 1:
            raise ValueError(f"a budget of {budget} measurements: expected at least 1")
        self.yardstick = SettingEvaluator(jobs, objective, tuning_limit)
        self.space, self.default, self.objective, self.budget = space, dict(default), objective, budget
        self.measurements: list[JudgedMeasurement] = []
        self.ending: SearchEnding | None = None
        self._tuner = ConstrainedTuner(space, self.yardstick.objective, self.yardstick.limits, default, prior, seed)
        self._asked: Setting | None = None
        self._last: Setting = self.default
        self._repeats = self._low_gains = self._carried = 0
        self._closed: set[int] = set()

    def next(self) -> Setting | None:
        """Setting to measure next; None if the search has ended. It stays the same until its result is told."""
        if self._asked is None:
            self.ending = self._over()
            if self.ending is None:
                self._asked = self._last if self._repeats else self._tuner.ask(0.0 if self._surely_kept() else _SURE)
        return None if self._asked is None else dict(self._asked)

    def told(self, found: Measurement) -> JudgedMeasurement:
        """Note the result for the setting that `next` gave.

        Args:
            found: The measurement. If it was stopped early: its power, and the times with a known lower bound. Numbers
                of a disturbed or failed one are not used.

        Returns:
            The measurement with its judgement.

        Raises:
            RuntimeError: `next` was not called before.
            ValueError: A complete measurement has no numbers or lacks a job's time, there is a time of an unknown job,
                or a number is not positive.
        """
        if self._asked is None:
            raise RuntimeError("nothing was asked for: next() comes before told()")
        setting, values = self._asked, self._values(found)
        repeats = self._repeats + 1 if found.status is MeasurementStatus.CONTAMINATED else 0
        given_up = repeats > _MOST_REPEATS
        # A setting that is disturbed every time is told as failed, so that the tuner does not ask for it again.
        status = MeasurementStatus.FAILED if given_up else found.status
        self._tuner.tell(setting, values, EvaluationStatus(status.value))
        self._asked, self._last, self._repeats = None, setting, 0 if given_up else repeats
        if not self._repeats:
            self._closed.add(self.space.index(setting))
            self._low_gains = self._low_gains + 1 if self._tuner.expected_gain < LITTLE_GAIN else 0
        return self._keep(setting, found)

    def carry(self, setting: Setting, found: Measurement) -> JudgedMeasurement:
        """Take over a measurement from before this search, such as from a search with more knobs: the default first.

        It is a measurement like any other, but does not count against the budget.

        Raises:
            ValueError: The setting is not in the space, a job's time is missing, or a number is not positive.
        """
        self._tuner.tell(setting, self._values(found))
        self._closed.add(self.space.index(setting))
        self._carried += 1
        return self._keep(dict(setting), found)

    def _surely_kept(self) -> bool:
        """Whether the last measurement surely kept the limits. If not, the next one must.

        No job should be too slow for two measurements in a row. The measurement's own number is not enough: with its
        noise, a setting that is just over a limit often looks as if it were just within it.
        """
        if not self.measurements or not self.measurements[-1].found.status.has_numbers:
            return True
        last = self.measurements[-1]
        return last.feasible is not False and self._tuner.feasible(last.requested) >= _SURE

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of all jobs of the packing."""
        return tuple(job.name for job in self.yardstick.jobs)

    @property
    def most(self) -> Mapping[str, float]:
        """Largest allowed ratio of each job: time / time at the default setting."""
        return self.yardstick.most

    @property
    def violations(self) -> int:
        """Number of measurements that broke a limit, by the measured numbers."""
        return sum(each.feasible is False for each in self.measurements)

    @property
    def best(self) -> Setting | None:
        """Best setting by the tuner's beliefs, if it was measured as feasible and no worse than the default.

        Otherwise it is the best of the settings that were measured as feasible; None if no setting kept the limits. The
        tuner weighs the noise of a number at the limit against its neighbours. But a setting that was not measured as
        feasible is never chosen.
        """
        places = {self.space.index(each.requested) for each in self.measurements if each.score is not None}
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
        """Score of a setting by the means of all its measurements; None if it or the default has none."""
        now, default = self._mean(setting), self._mean(self.default)
        return None if now is None or default is None else self.yardstick.judge(now, default)

    @property
    def saved(self) -> float | None:
        """Part of the default's energy that the best setting saves; None if no setting is feasible."""
        best = self.best
        return saved_part(None if best is None else self.judged(best), self.judged(self.default))

    def as_dict(self, units: Mapping[str, str]) -> dict[str, Any]:
        """Plain data under the names of a tuned result, without what only the measuring caller knows.

        Args:
            units: Unit of each knob. A knob that is left out has none.
        """
        knobs = [
            {
                "name": knob.name,
                "unit": units.get(knob.name, ""),
                "count": len(knob.values) + len(knob.special),
                "lowest": min(knob.values, default=None),
                "highest": max(knob.values, default=None),
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
        if len(self.measurements) - self._carried >= self.budget:
            return SearchEnding.BUDGET
        if self._repeats:
            return None
        if self.space.index(self.default) in self._closed and self._mean(self.default) is None:
            return SearchEnding.NO_DEFAULT
        if len(self._closed) == len(self.space):
            return SearchEnding.NOTHING_LEFT
        if len(self.measurements) >= _LEAST_TRIALS and self._low_gains >= 2:
            return SearchEnding.LITTLE_GAIN
        return None

    def _values(self, found: Measurement) -> dict[str, float]:
        """Numbers for the tuner, by its names; empty if nothing was measured.

        Raises:
            ValueError: A number is missing, or belongs to no job.
        """
        is_whole = found.status is MeasurementStatus.MEASURED
        if found.power_w is None or not found.status.has_numbers:
            if is_whole:
                raise ValueError("a complete measurement has numbers")
            return {}
        names = {job.name for job in self.yardstick.jobs}
        wrong = set(found.times_s) - names or (names - set(found.times_s) if is_whole else set())
        if wrong:
            raise ValueError(f"{', '.join(sorted(wrong))}: expected a time of each job, and of no other")
        return numbers(found)

    def _keep(self, setting: Setting, found: Measurement) -> JudgedMeasurement:
        self.measurements.append(JudgedMeasurement(len(self.measurements) + 1, setting, found))
        self.measurements[-1] = self._judged(self.measurements[-1])
        return self.measurements[-1]

    def _judged(self, own: JudgedMeasurement) -> JudgedMeasurement:
        default, found = self._mean(self.default), own.found
        if default is None or found.power_w is None or not found.status.has_numbers:
            return own
        interference = self.yardstick.interference(found, default)
        kept = self.yardstick.keeps(interference)
        if found.status is MeasurementStatus.CENSORED:
            return replace(own, interference=interference, feasible=None if kept else False)
        score = self.yardstick.judge(found, default)
        self.measurements[-1] = own = replace(own, score=score, interference=interference, feasible=kept)
        return replace(own, best=self.best == own.requested)

    def _mean(self, setting: Setting) -> Measurement | None:
        """Geometric means of the measurements of a setting; None if there are none."""
        own = [
            (each.found, each.found.power_w)
            for each in self.measurements
            if each.found.status is MeasurementStatus.MEASURED
            and each.found.power_w is not None
            and each.requested == setting
        ]
        if not own:
            return None
        times = {job.name: _middle([each.times_s[job.name] for each, _ in own]) for job in self.yardstick.jobs}
        names = [job.name for job in self.yardstick.jobs if all(job.name in each.rates for each, _ in own)]
        rates = {name: _middle([each.rates[name] for each, _ in own]) for name in names}
        power_w = _middle([power_w for _, power_w in own])
        return replace(own[0][0], power_w=power_w, times_s=times, rates=rates)


def _middle(values: Sequence[float]) -> float:
    # A single value is returned as it is: exp(log(value)) may differ from it.
    return values[0] if len(values) == 1 else math.exp(fmean(math.log(value) for value in values))
