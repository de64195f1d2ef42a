"""Searches of a table of measured settings, ours and others, with one interface: for bench_tuner.py."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import optuna
import torch

from scripts.bench.plain_botorch import most_improving
from scripts.bench.tuner_tables import Problem
from tuner import ConstrainedTuner, Limit, Prior, energy
from tuner.physics import grey_box
from tuner.transfer import transferred

MOST, NOISE, BUDGET = 1.1, 0.02, 25
TIME = "time_s"

Search = Generator[int, tuple[float, float], None]
"""Generator of indices to try, the default first; it is sent each measurement: (power, time)."""


@dataclass(frozen=True)
class Outcome:
    """Course of a search.

    Attributes:
        trials: Trials until one was within 5 % of the best feasible setting; one more than the budget if none was.
        violations: Trials among these that break the limit.
        spent: Energy of these trials, over that of one trial at the default; every trial does the same work.
        regrets: Regret of the best feasible setting so far against the best of all, after each trial.
    """

    trials: int
    violations: int
    spent: float
    regrets: list[float]

    def regret(self, after: int) -> float:
        """Regret after a number of trials, or after the last one."""
        return self.regrets[min(after, len(self.regrets)) - 1]


def run(problem: Problem, search: Search, seed: int) -> Outcome:
    """Let a search try settings until its budget is used up."""
    draw = np.random.default_rng(1000 + seed)
    feasible, joules = problem.feasible(MOST), problem.joules
    best = joules[feasible].min()
    found, violations, spent, regrets, so_far = 0, 0, 0.0, [], math.inf
    place = next(search)
    for count in range(1, BUDGET + 1):
        if not found:
            spent += math.exp(joules[place] - joules[problem.at])
            violations += not feasible[place]
        if feasible[place]:
            so_far = min(so_far, joules[place])
            if not found and joules[place] <= best + math.log(1.05):
                found = count
        regrets.append(math.exp(so_far - best) - 1.0)
        power, slow = np.exp(problem.logs[:, place] + NOISE * draw.standard_normal(2))
        try:
            place = search.send((float(power), float(slow)))
        except StopIteration:
            break
    return Outcome(found or BUDGET + 1, violations, spent, regrets)


def random(problem: Problem, seed: int) -> Search:
    """Search in random order."""
    yield problem.at
    for place in np.random.default_rng(_seed(problem, seed)).permutation(len(problem.space)):
        if place != problem.at:
            yield int(place)


def grid(problem: Problem, _seed: int) -> Search:
    """Search in order, from the highest values of all knobs down."""
    yield problem.at
    for place in np.lexsort(-problem.space.numbers.T):
        if place != problem.at:
            yield int(place)


def sweep(problem: Problem, _seed: int) -> Search:
    """Search of Zeus: the first knob from its highest value down, the rest at the default.

    It then takes the cheapest setting within the maximal slowdown, so the best feasible one of the sweep counts.
    """
    yield problem.at
    numbers = problem.space.numbers
    same = (numbers[:, 1:] == numbers[problem.at, 1:]).all(axis=1)
    line = [int(place) for place in np.flatnonzero(same) if place != problem.at]
    for place in sorted(line, key=lambda place: -numbers[place, 0]):
        _ = yield place  # not `yield from`: a list cannot be sent anything


def ours(problem: Problem, seed: int, prior: Prior | None = None, plain: bool = False) -> Search:
    """Search of our tuner, with a prior, by default the physical one, or without (`plain`)."""
    prior = prior or _physical(problem)
    tuned = ConstrainedTuner(
        problem.space, energy({TIME: 1.0}), [Limit(TIME, MOST)], problem.default, prior, seed, plain
    )
    while True:
        setting = tuned.ask()
        power, slow = yield problem.space.index(setting)
        tuned.tell(setting, {"power_w": power, TIME: slow})


def plain(problem: Problem, seed: int) -> Search:
    """Constrained Bayesian optimization without a prior."""
    return ours(problem, seed, plain=True)


def warm(problem: Problem, others: Sequence[Problem]) -> Prior:
    """Prior from measurements of other workloads at the same settings."""
    known = [torch.from_numpy(other.logs)[None] for other in others if other is not problem]
    return transferred(problem.space, [TIME], problem.default, known)


@cache
def _physical(problem: Problem) -> Prior:
    return grey_box(problem.space, [TIME], problem.default)


def botorch_search(problem: Problem, seed: int) -> Search:
    """Constrained search as in botorch's tutorials: a `SingleTaskGP` for each observable, and qLogNEI.

    The default and two random settings come first. A setting is not tried twice, which is to its advantage.
    """
    points = torch.from_numpy(problem.space.features)
    tried = [problem.at]
    logs = [np.log((yield problem.at))]
    draw = np.random.default_rng(_seed(problem, seed))
    others = [int(place) for place in draw.permutation(len(points)) if place != problem.at]
    torch.manual_seed(_seed(problem, seed))
    while True:
        if len(tried) < 3:
            place = others[len(tried) - 1]
        else:
            told = torch.from_numpy(np.stack(logs))
            place = most_improving(points, tried, told, [-1.0, -1.0], partial(_over_limit, float(logs[0][1])))
        logs.append(np.log((yield place)))
        tried.append(place)
        if len(tried) == len(points):
            return


def _over_limit(first_time: float, samples: torch.Tensor) -> torch.Tensor:
    """Logarithm of the time over the allowed one, from samples of the logarithms of power and time."""
    return samples[..., 1] - first_time - math.log(MOST)


def optuna_search(problem: Problem, seed: int, sampler: str) -> Search:
    """Search of one of optuna's samplers with its defaults and the limit; repeated settings count as trials."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both ways to give constraints are marked experimental
        make = getattr(optuna.samplers, sampler)
        study = optuna.create_study(sampler=make(seed=_seed(problem, seed), constraints_func=_excess))
    values = [sorted(knob.values) for knob in problem.space.knobs]
    names = [knob.name for knob in problem.space.knobs]
    study.enqueue_trial(
        {name: axis.index(float(problem.default[name])) for name, axis in zip(names, values, strict=True)}
    )
    slow_at_default = 0.0
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about experimental methods, again
            trial = study.ask()
            setting = {
                name: axis[trial.suggest_int(name, 0, len(axis) - 1)] for name, axis in zip(names, values, strict=True)
            }
            if setting not in problem.space.settings:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            power, slow = yield problem.space.index(setting)
            slow_at_default = slow_at_default or slow
            trial.set_user_attr("excess", [math.log(slow / slow_at_default / MOST)])
            study.tell(trial, math.log(power * slow))


def _excess(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
    attributes: Sequence[float] = trial.user_attrs.get("excess", [1.0])
    return attributes


def _seed(problem: Problem, seed: int) -> int:
    """Seed of a search, different for each problem; else a lucky seed would be lucky on all problems."""
    return zlib.crc32(f"{problem.table} {problem.name} {seed}".encode())


def best_static(problem: Problem, others: Sequence[Problem]) -> int:
    """Setting that is cheapest on average for the other workloads and feasible for each of them.

    Work sizes are compared by their ratio to the default's, and the nearest of another workload counts.
    """
    settings = _relative(problem)
    mean, kept = np.zeros(len(settings)), np.ones(len(settings), dtype=bool)
    for other in others:
        if other is problem:
            continue
        theirs = _relative(other)
        nearest = np.abs(settings[:, None] - theirs[None]).sum(axis=2).argmin(axis=1)
        mean += other.joules[nearest] - other.joules[other.at]
        kept &= other.feasible(MOST)[nearest]
    kept[problem.at] = True
    return int(np.where(kept, mean, np.inf).argmin())


def _relative(problem: Problem) -> np.ndarray:
    """(n_settings, n_knobs) logarithms over those of the default."""
    logs = np.log(problem.space.numbers)
    return np.asarray(logs - logs[problem.at])
