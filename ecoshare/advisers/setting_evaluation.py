"""What measured numbers say of a setting of a packing: energy, interference, whether the tuning limit is kept.

The formulas are those that the tuner minimises (`tuner/objective.py`), so what is shown and what is searched agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import tuner
from ecoshare.advisers.advice import OBJECTIVES
from tuner import Limit
from tuner.objective import POWER, Objective, Observed


@dataclass(frozen=True, slots=True)
class PackedJob:
    """A job of the packing.

    Attributes:
        alone_w: Watts of the device while it runs alone at the default setting.
        alone_s: Seconds an iteration then; where not known, those at the default setting in the packing.
        share: Part of the time during which it holds its lane's turn; its times are those while it holds it.
        most: That its time may be over that at the default setting, where its owner allows less than the tuning limit.
    """

    name: str
    alone_w: float
    alone_s: float | None = None
    share: float = 1.0
    most: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """What a trial has measured.

    Attributes:
        times_s: Seconds an iteration by the name of the job.
        rates: Iterations a second of each job, waits included; empty where nobody counted them.
    """

    power_w: float
    times_s: Mapping[str, float]
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettingScore:
    """What a setting is worth.

    Attributes:
        energy: E: joules spent per joule that the same work costs alone. Below 1 saves.
        interference: Time of each job over that at the default setting.
        objective: What is minimised.
        feasible: Whether every job keeps the tuning limit, and its own.
    """

    energy: float
    interference: dict[str, float]
    objective: float
    feasible: bool


class SettingEvaluator:
    """Judges measured numbers of one packing under one objective.

    Attributes:
        objective: For the tuner; its observables are `power_w` and `observable(name)` of each job.
        limits: For the tuner.
        most: By job: that its time may be over that at the default setting.
    """

    def __init__(self, jobs: Sequence[PackedJob], objective: str, tuning_limit: float) -> None:
        """A yardstick for the objective `energy`, `edp`, `jct` or `makespan`; the last two both minimise the times.

        Raises:
            ValueError: No job, two of one name, an objective that is none, a number that cannot be.
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

    def judge(self, now: MeasuredRates, default: MeasuredRates) -> SettingScore:
        """What `now` is worth, where `default` was measured at the default setting."""
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

    def _counted(self, now: MeasuredRates, default: MeasuredRates) -> float | None:
        """E by the iterations that were counted, where they were: what was done, whatever the turns were.

        The tuner's own formula goes by times and the shares of the default: what it can know of settings not tried.
        """
        if any(now.rates.get(job.name, 0.0) <= 0.0 or default.rates.get(job.name, 0.0) <= 0.0 for job in self.jobs):
            return None
        work = 0.0
        for job in self.jobs:
            # Where nobody knows the time alone, the packing at its default is what the work costs.
            alone_s = job.alone_s if job.alone_s is not None else job.share / default.rates[job.name]
            work += job.alone_w * alone_s * now.rates[job.name]
        return now.power_w / work

    def interference(self, now: MeasuredRates, default: MeasuredRates) -> dict[str, float]:
        """Time of each job over that at the default setting, for those whose time `now` has."""
        names = [job.name for job in self.jobs if job.name in now.times_s]
        return {name: now.times_s[name] / default.times_s[name] for name in names}

    def keeps(self, interference: Mapping[str, float]) -> bool:
        """Whether the tuning limit is kept, and each job's own."""
        return all(slower <= self.most[name] for name, slower in interference.items())

    def _objective(self, name: str) -> Objective:
        slow = tuner.time(tuple(observable(job.name) for job in self.jobs))
        if name == "energy":
            return self._energy
        if name == "edp":
            return lambda now, default: self._energy(now, default) * slow(now, default)
        return slow


def observable(job: str) -> str:
    """The name of a job's time among the tuner's observables; no job's can be that of the power."""
    return f"time of {job}"


def numbers(measured: MeasuredRates) -> dict[str, float]:
    """By the tuner's names."""
    return {POWER: measured.power_w} | {observable(name): time_s for name, time_s in measured.times_s.items()}


def _energy(jobs: Sequence[PackedJob]) -> Objective:
    """E: `tuner.energy`, with the times alone in place of those at the default where they are known."""
    spent = tuner.energy({observable(job.name): job.share * job.alone_w for job in jobs})
    alone = {observable(job.name): torch.tensor(job.alone_s) for job in jobs if job.alone_s is not None}

    def against_alone(now: Observed, default: Observed) -> Tensor:
        return spent(now, {**default, **alone})

    return against_alone


def _tensors(measured: MeasuredRates) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.double) for name, value in numbers(measured).items()}
