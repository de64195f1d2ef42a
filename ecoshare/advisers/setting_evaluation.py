"""Score of a measured setting of a packing: energy, interference, and whether the tuning limit is kept.

The formulas are the objectives of the tuner (`tuner.objective`), so reports and search agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import tuner
from ecoshare.values.goal import OBJECTIVES
from ecoshare.values.joules import relative_energy
from ecoshare.values.measurement import Measurement
from tuner import Limit
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
    """

    name: str
    alone_w: float
    alone_s: float | None = None
    share: float = 1.0
    most: float | None = None


@dataclass(frozen=True, slots=True)
class SettingScore:
    """Score of a setting.

    Attributes:
        energy: Relative energy E; see `ecoshare.values.joules.relative_energy`.
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
