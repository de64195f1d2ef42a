"""Shockwave: a plan of many rounds for jobs that change their batch sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.contrib.policies.epoch_forecast import EpochForecast
from ecoshare.core.commands import PlanJob
from ecoshare.core.policies.common import InRounds, pick
from ecoshare.core.policies.orders import expected_s
from ecoshare.core.records import Job

DEFAULTS = {"every": 8.0, "last": 100.0, "late": 12.0, "most": 1e4, "round": 120.0, "spread": 1e-3, "window": 20.0}
"""Default values of the options: those of the authors, except `most`."""

_MOMENTUM = 0.9


class Shockwave(InRounds):
    """Policy that plans a span of rounds with the largest product of the jobs' progress (Nash social welfare).

    ::

        max  sum_i w_i log(progress_i) / (N T)  -  k max_i (time left of job i after the T rounds)
        w_i  = rho_i ^ late  for jobs that are late by the forecast factor rho_i, else 1
        N      number of jobs

    Source: Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning",
    NSDI 2023, sections 4 to 6. The time left is a forecast (`epoch_forecast.py`). A planner solves the program
    (`shockwave_program.py`).

    The paper's constraint that no job be late has no solution once a job is due within the planned rounds. The weights
    replace it, as in the authors' runs. The authors correct forecasts by speeds measured later. This policy counts turn
    time, so it needs no correction.

    Options: `round` (s), `window` (T, rounds planned), `every` (rounds between plans; jobs that come or end cause a new
    plan, too), `spread` (k), `late` (exponent of the weight), `last` (exponent for jobs in their last round), `most`
    (largest weight).
    """

    name: ClassVar[str] = "shockwave"
    options: ClassVar[tuple[str, ...]] = tuple(sorted(DEFAULTS))
    planner: ClassVar[str] = "shockwave"

    def __init__(self, options: Mapping[str, float]) -> None:
        self._set = {**DEFAULTS, **{name: value for name, value in options.items() if name in DEFAULTS}}
        self.round_s = self._set["round"]
        self.planned_by = tuple((name, self._set[name]) for name in ("round", "spread", "window"))
        self._forecasts: dict[str, EpochForecast] = {}
        self._dues: dict[str, list[tuple[float, float]]] = {}  # (time of forecast, end at an equal share), by job
        self._plan: list[list[str]] = []  # names of the jobs of each coming round
        self._asked: tuple[PlanJob, ...] = ()
        self._rounds: dict[str, int] | None = None

    def question(self, jobs: Sequence[Job], devices: int, at_s: float) -> tuple[PlanJob, ...]:
        """All jobs if one has come or ended or the plan is old; else empty."""
        names = {job.spec.name for job in jobs}
        changed = names != self._forecasts.keys()
        planned = int(self._set["window"]) - len(self._plan)
        if not jobs or devices <= 0 or (not changed and self._plan and planned < self._set["every"]):
            return ()
        share = min(1.0, devices / len(jobs))
        for name in self._forecasts.keys() - names:
            del self._forecasts[name], self._dues[name]
        asked = []
        for job in jobs:
            if job.spec.name not in self._forecasts:
                self._forecasts[job.spec.name] = _forecast(job, at_s)
            forecast = self._forecasts[job.spec.name]
            done = forecast.done(job.attained_s(at_s))
            left_s = forecast.left_s(done)
            dues = self._dues.setdefault(job.spec.name, [])
            if changed:
                dues.append((at_s, job.arrival_s + (forecast.done_s(done) + left_s) / share))
            late = (at_s + left_s / share) / _due_s(dues, at_s)
            power = self._set["last"] if left_s < self.round_s else self._set["late"]
            enough = math.log(self._set["most"])
            asked.append(
                PlanJob(
                    name=job.spec.name,
                    gpus=job.spec.gpus,
                    needs_s=left_s,
                    age_s=at_s - job.arrival_s,
                    progress=done / forecast.epochs,
                    whole_s=forecast.epochs * forecast.epoch_s(min(done, forecast.epochs - 1)),
                    weight=math.exp(min(power * math.log(max(1.0, late)), enough)),  # bounded before it overflows
                )
            )
        self._asked = tuple(asked)
        return self._asked

    def told(self, shares: Mapping[str, float]) -> None:
        """Note the plan: the share of the planned rounds that each job gets."""
        self._rounds = {name: round(share * self._set["window"]) for name, share in shares.items()}

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Jobs of the next round of the plan."""
        if self._rounds is not None:
            self._plan, self._rounds = self._in_rounds(self._rounds, devices), None
        by_name = {job.spec.name: job for job in jobs}
        chosen = [by_name[name] for name in (self._plan.pop(0) if self._plan else ()) if name in by_name]
        return pick(chosen, devices)

    def _in_rounds(self, rounds: Mapping[str, int], devices: int) -> list[list[str]]:
        """Names of the jobs of each round.

        Each round takes first the jobs that must run in all rounds left, then those with the largest weight per
        GPU-round. Devices that would idle go to the jobs with the most time left.
        """
        todo = {job.name: rounds.get(job.name, 0) for job in self._asked}
        worth = {job.name: job.weight / max(1, todo[job.name] * job.gpus) for job in self._asked}
        plan = []
        window = int(self._set["window"])
        for ahead in range(window, 0, -1):
            free, chosen = devices, []
            wanted = [job for job in self._asked if todo[job.name] > 0]
            wanted.sort(key=lambda job: (todo[job.name] < ahead, -worth[job.name]))
            spare = sorted(self._asked, key=lambda job: -job.needs_s)
            for job in [*wanted, *spare]:
                if job.gpus <= free and job.name not in chosen:
                    free -= job.gpus
                    chosen.append(job.name)
                    todo[job.name] -= 1
            plan.append(chosen)
        return plan


def _forecast(job: Job, at_s: float) -> EpochForecast:
    """Forecast from the known epochs of a job. A job without them counts as one epoch."""
    return EpochForecast(job.spec.phases or ((1.0, max(expected_s(job, at_s), 1e-3)),))


def _due_s(dues: Sequence[tuple[float, float]], at_s: float) -> float:
    """Time (s) at which a job would have ended with an equal share of the devices.

    The value mixes the mean of all forecasts, each weighted by the time for which it stood, with the last forecast.
    """
    ends = [*(since_s for since_s, _ in dues[1:]), at_s]
    stood = [end - since for end, (since, _) in zip(ends, dues, strict=True)]
    last_s = dues[-1][1]
    whole = sum(stood)
    mean_s = sum(for_s * due_s for for_s, (_, due_s) in zip(stood, dues, strict=True)) / whole if whole else last_s
    return max(_MOMENTUM * mean_s + (1.0 - _MOMENTUM) * last_s, 1e-3)
