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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import tuner
from ecoshare.base.joules import relative_energy
from ecoshare.base.measurement import OBJECTIVES, TUNING_LIMIT, Measurement, MeasurementStatus
from tuner import ConstrainedTuner, EvaluationStatus, Knob, Limit, Prior, Role, Setting, Space, bucketised
from tuner.objective import POWER, Objective, Observed


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A job of the packing.

    Attributes:
        alone_w: Power (W) of the device while the job runs alone at the default setting.
        alone_s: Iteration time (s) of the job alone at the default setting. None: use the time at the default setting
            in the packing.
        share: Share of time in which the job holds its lane's turn. The job's times are times while it holds the turn.
        most: Largest allowed ratio: time / time at the default setting. None: only the tuning limit holds.
        job_class: Name of the job in the packing.
    """

    name: str
    alone_w: float
    alone_s: float | None = None
    share: float = 1.0
    most: float | None = None
    job_class: str = ""


@dataclass(frozen=True, slots=True)
class SettingScore:
    """Score of a setting.

    Attributes:
        energy: Relative energy E; see `ecoshare.base.joules.relative_energy`.
        interference: Ratio for each job: time / time at the default setting.
        objective: Value that the search minimises.
        feasible: Whether every job keeps the tuning limit and the job's own limit.
    """

    energy: float
    interference: dict[str, float]
    objective: float
    feasible: bool


def saved_part(best: SettingScore | None, default: SettingScore | None) -> float | None:
    """Part of the default's energy that a setting saves; None if one of the scores is not known."""
    return None if best is None or default is None else 1.0 - best.energy / default.energy


class SettingEvaluator:
    """Computes the score of measured settings of one packing under one objective.

    The formulas are the objectives of the tuner (`tuner.objective`), so reports and search agree.

    Attributes:
        objective: Objective for the tuner; the observables are `power_w` and `observable(name)` of each job.
        limits: Limits for the tuner, one for each job.
        most: Largest allowed ratio of each job: time / time at the default setting.
    """

    def __init__(self, jobs: Sequence[PackedJob], objective: str, tuning_limit: float) -> None:
        """Make an evaluator for the objective `energy`, `edp`, `jct` or `makespan`.

        `jct` and `makespan` both minimise the mean relative time.

        Raises:
            ValueError: There is no job, two jobs have one name, the objective is unknown, or a number is out of range.
        """
        if not jobs or len({job.name for job in jobs}) != len(jobs):
            raise ValueError("a packing has jobs, each with a name of its own")
        if objective not in OBJECTIVES:
            raise ValueError(f"objective {objective!r}: expected {', '.join(OBJECTIVES[:-1])} or {OBJECTIVES[-1]}")
        if not (math.isfinite(tuning_limit) and tuning_limit >= 1.0):
            raise ValueError(f"a tuning limit of {tuning_limit:g}: expected at least 1")
        for job in jobs:
            numbers = (job.alone_w, job.share, 1.0 if job.alone_s is None else job.alone_s)
            if not all(math.isfinite(number) and number > 0.0 for number in numbers):
                raise ValueError(f"watts, time and share of {job.name} are positive numbers")
            if job.most is not None and not job.most >= 1.0:
                raise ValueError(f"{job.name} may not be held to less than its time at the default setting")
        self.jobs, self.tuning_limit, self._name = tuple(jobs), tuning_limit, objective
        self._energy = _energy(jobs)
        self.objective = self._objective(objective)
        self.most = {job.name: tuning_limit if job.most is None else min(tuning_limit, job.most) for job in jobs}
        self.limits = tuple(Limit(observable(name), most) for name, most in self.most.items())

    def judge(self, now: Measurement, default: Measurement) -> SettingScore:
        """Score of the measurement `now`, relative to one at the default setting. Both have joules."""
        here, there = _tensors(now), _tensors(default)
        interference = self.interference(now, default)
        energy, objective = float(self._energy(here, there)), float(self.objective(here, there))
        counted = self._counted(now, default)
        if counted is not None and self._name in ("energy", "edp"):
            objective *= counted / energy
        return SettingScore(
            energy=energy if counted is None else counted,
            interference=interference,
            objective=objective,
            feasible=self.keeps(interference),
        )

    def _counted(self, now: Measurement, default: Measurement) -> float | None:
        """Relative energy E from the counted iterations; None if they were not counted.

        The counts give the work that was done, however the jobs shared their turns. The tuner's own formula uses times
        and the shares at the default, because these are all that it knows of settings that were not tried.
        """
        if any(now.rates.get(job.name, 0.0) <= 0.0 or default.rates.get(job.name, 0.0) <= 0.0 for job in self.jobs):
            return None
        assert now.power_w is not None, "the objective needs joules"
        work = []
        for job in self.jobs:
            # If the time alone is unknown, the packing at its default setting is the reference.
            alone_s = job.alone_s if job.alone_s is not None else job.share / default.rates[job.name]
            work.append((job.alone_w * alone_s, now.rates[job.name]))
        return relative_energy(now.power_w, work)

    def interference(self, now: Measurement, default: Measurement) -> dict[str, float]:
        """Ratio for each job with a time in `now`: time / time at the default setting."""
        names = [job.name for job in self.jobs if job.name in now.times_s]
        return {name: now.times_s[name] / default.times_s[name] for name in names}

    def keeps(self, interference: Mapping[str, float]) -> bool:
        """Whether every job keeps the tuning limit and the job's own limit."""
        return all(slower <= self.most[name] for name, slower in interference.items())

    def _objective(self, name: str) -> Objective:
        slow = tuner.time(tuple(observable(job.name) for job in self.jobs))
        if name == "energy":
            return self._energy
        if name == "edp":
            return lambda now, default: self._energy(now, default) * slow(now, default)
        return slow


def observable(job: str) -> str:
    """Name of a job's time among the tuner's observables; it never equals the name of the power."""
    return f"time of {job}"


def numbers(measured: Measurement) -> dict[str, float]:
    """Observables under the tuner's names. A measurement without joules has no power."""
    power = {} if measured.power_w is None else {POWER: measured.power_w}
    return power | {observable(name): time_s for name, time_s in measured.times_s.items()}


def _energy(jobs: Sequence[PackedJob]) -> Objective:
    """Relative energy E: `tuner.energy`, with known times alone in place of the times at the default."""
    spent = tuner.energy({observable(job.name): job.share * job.alone_w for job in jobs})
    alone = {observable(job.name): torch.tensor(job.alone_s) for job in jobs if job.alone_s is not None}

    def against_alone(now: Observed, default: Observed) -> Tensor:
        return spent(now, {**default, **alone})

    return against_alone


def _tensors(measured: Measurement) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.double) for name, value in numbers(measured).items()}


__all__ = ["MOST_VALUES", "Prior", "Space", "knob_of", "space_of"]
"""The runtime takes the types of the tuner from here: no module outside of `advisers` imports `tuner`."""

_ROLES = {
    "gpu_clock": Role.CORE_CLOCK,
    "memory_clock": Role.MEMORY_CLOCK,
    "power_limit": Role.POWER_LIMIT,
    "cpu_frequency": Role.CORE_CLOCK,
    "cpu_power_limit": Role.POWER_LIMIT,
}

MOST_VALUES = 24
"""Most values of one knob: neighbours among the hundred clocks of a GPU differ by less than can be measured."""


MOST_SETTINGS = 1_500
"""Most combinations of all values: a search looks at each of them, in time and memory that grow with their number."""

_LEAST_VALUES = 3


def knob_of(name: str, values: Sequence[float], special: Mapping[str, float], beside: bool = False) -> Knob:
    """Hardware knob for the tuner, with the role that tells what the knob does.

    Args:
        name: Name of the knob.
        values: Numbers that the knob takes; none if its values have names only.
        special: Special values, such as "unlocked", each with the number that it is most like.
        beside: Whether the knob belongs to the processors beside the device that runs the jobs.
    """
    return Knob(name, tuple(values), Role.OTHER if beside else _ROLES.get(name, Role.OTHER), special)


def space_of(knobs: Sequence[Knob], allows: Callable[[Mapping[str, float | str]], bool]) -> Space:
    """Space of all allowed settings of the knobs, with at most `MOST_VALUES` numbers of each knob.

    More knobs get fewer numbers each, until there are at most `MOST_SETTINGS` combinations.

    Args:
        knobs: The knobs.
        allows: Whether the values of a setting go together.
    """
    most = MOST_VALUES
    while _combinations(fewer := [bucketised(knob, most) for knob in knobs]) > MOST_SETTINGS and most > _LEAST_VALUES:
        most -= 1
    return Space(fewer, [setting for setting in Space.product(*fewer).settings if allows(setting)])


def _combinations(knobs: Sequence[Knob]) -> int:
    return math.prod(len(knob.values) + len(knob.special) for knob in knobs)


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
