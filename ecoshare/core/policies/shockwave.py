"""Shockwave: a plan for many rounds ahead, for jobs that change their batch sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.core.commands import PlanJob
from ecoshare.core.placement.rounds import pick
from ecoshare.core.policies.common import InRounds
from ecoshare.core.policies.epoch_forecast import EpochForecast
from ecoshare.core.policies.srtf import expected_s
from ecoshare.core.records import Job

DEFAULTS = {"every": 8.0, "last": 100.0, "late": 12.0, "most": 1e4, "round": 120.0, "spread": 1e-3, "window": 20.0}
"""Of the options, as its authors set them, but `most`."""

_MOMENTUM = 0.9


class Shockwave(InRounds):
    """The rounds of a window go to jobs so that the product of their progress is largest (Nash social welfare).

    ::

        max  sum_i w_i log(progress_i) / (N T)  -  k max_i (what is left of i after the window)
        w_i  = rho_i ^ late  for those that are late by the forecast rho_i, else 1

    Source: Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning",
    NSDI 2023, sections 4 to 6; what is left is forecast (`epoch_forecast.py`), the program solved by a planner
    (`advisers/planners/shockwave_program.py`). Its constraint that no job be late has no solution as soon as one is due
    within the window, and the weights stand for it, as they do in its authors' runs. What its authors correct by speeds
    measured since is left out: ours go by the time with the turn.

    Options: `round` (s), `window` (rounds planned), `every` (rounds between plans; there is a new one when jobs come or
    end), `spread` (k), `late` (power of a weight), `last` (the same for jobs in their last round), `most` (the largest
    weight).
    """

    name: ClassVar[str] = "shockwave"
    options: ClassVar[tuple[str, ...]] = tuple(sorted(DEFAULTS))
    planner: ClassVar[str] = "shockwave"

    def __init__(self, options: Mapping[str, float]) -> None:
        self._set = {**DEFAULTS, **{name: value for name, value in options.items() if name in DEFAULTS}}
        self.round_s = self._set["round"]
        self.planned_by = tuple((name, self._set[name]) for name in ("round", "spread", "window"))
        self._forecasts: dict[str, EpochForecast] = {}
        self._dues: dict[str, list[tuple[float, float]]] = {}  # (since when, end at an equal share) by job
        self._plan: list[list[str]] = []  # who runs in the coming rounds
        self._asked: tuple[PlanJob, ...] = ()
        self._rounds: dict[str, int] | None = None

    def question(self, jobs: Sequence[Job], devices: int, at_s: float) -> tuple[PlanJob, ...]:
        """All jobs, where any has come or ended, or the plan is old."""
        names = {job.spec.name for job in jobs}
        changed = names != self._forecasts.keys()
        planned = int(self._set["window"]) - len(self._plan)
        if not jobs or (not changed and self._plan and planned < self._set["every"]):
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
                    weight=math.exp(min(power * math.log(max(1.0, late)), enough)),  # its logarithm is bounded first
                )
            )
        self._asked = tuple(asked)
        return self._asked

    def told(self, shares: Mapping[str, float]) -> None:
        """Rounds of the window for each job, over the rounds of the window."""
        self._rounds = {name: round(share * self._set["window"]) for name, share in shares.items()}

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Those of the plan's next round."""
        if self._rounds is not None:
            self._plan, self._rounds = self._in_rounds(self._rounds, devices), None
        by_name = {job.spec.name: job for job in jobs}
        chosen = [by_name[name] for name in (self._plan.pop(0) if self._plan else ()) if name in by_name]
        return pick(chosen, devices)

    def _in_rounds(self, rounds: Mapping[str, int], devices: int) -> list[list[str]]:
        """Round by round: who must run in all that are left, then the largest weight for its GPU-rounds, and devices
        that would idle go to those with the most left."""
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
    """Of the epochs that are known of a job; else it is one."""
    return EpochForecast(job.spec.phases or ((1.0, max(expected_s(job, at_s), 1e-3)),))


def _due_s(dues: Sequence[tuple[float, float]], at_s: float) -> float:
    """When a job would have ended with an equal share: the mean of what was expected, each for as long as it stood."""
    ends = [*(since_s for since_s, _ in dues[1:]), at_s]
    stood = [end - since for end, (since, _) in zip(ends, dues, strict=True)]
    last_s = dues[-1][1]
    whole = sum(stood)
    mean_s = sum(for_s * due_s for for_s, (_, due_s) in zip(stood, dues, strict=True)) / whole if whole else last_s
    return max(_MOMENTUM * mean_s + (1.0 - _MOMENTUM) * last_s, 1e-3)
