#!/usr/bin/env python3
"""How many trials it takes to tune a device: ours against other searches, on measured tables (`--data DIR`).

Each search begins with the default setting, measures with 2 % noise, and must keep every time within 1.1 of the
default's. Counted are the trials until one is within 5 % of the best that is possible under that limit by the table
itself, and the trials on the way that break it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Generator
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

import tuning_tables
from benchmarking import Figure, main, median, percentile, say
from tuner import ConstrainedTuner, Limit, Prior, energy
from tuner.physics import grey_box
from tuning_tables import Problem

MOST, NOISE, BUDGET = 1.1, 0.02, 25
TIME = "time_s"
OWN_WEIGHT = 0.2
"""Of the physical prior beside what other workloads of the device have shown."""

Search = Generator[int, tuple[float, float], None]
"""Places to try; is sent what was measured there: (power, time)."""


def ours(problem: Problem, seed: int, prior: Prior | None, plain: bool = False) -> Search:
    """Our tuner, with a prior or without."""
    tuned = ConstrainedTuner(
        problem.space, energy({TIME: 1.0}), [Limit(TIME, MOST)], problem.default, prior, seed, plain
    )
    while True:
        setting = tuned.ask()
        power, slow = yield problem.space.index(setting)
        tuned.tell(setting, {"power_w": power, TIME: slow})


def random(problem: Problem, seed: int) -> Search:
    """In any order."""
    order = np.random.default_rng(seed).permutation(len(problem.space))
    yield problem.at
    for place in order:
        if place != problem.at:
            yield int(place)


def sweep(problem: Problem, _seed: int) -> Search:
    """Zeus' way: the first knob from its highest value down, others at the default; then the others likewise."""
    yield problem.at
    numbers = problem.space.numbers
    for column in range(numbers.shape[1]):
        others = [other for other in range(numbers.shape[1]) if other != column]
        same = (numbers[:, others] == numbers[problem.at, others]).all(axis=1)
        line = [int(place) for place in np.flatnonzero(same) if place != problem.at]
        for place in sorted(line, key=lambda place: -numbers[place, column]):
            yield place
    for place in range(len(problem.space)):
        yield place


def run(problem: Problem, search: Search, seed: int) -> tuple[int, int, list[float]]:
    """Trials until one is good, violations until then, and regret after each trial: of the best feasible by then."""
    draw = np.random.default_rng(1000 + seed)
    feasible, joules = problem.feasible(MOST), problem.joules
    best = joules[feasible].min()
    found, violations, regrets, so_far = 0, 0, [], math.inf
    place = next(search)
    for count in range(1, BUDGET + 1):
        if feasible[place]:
            so_far = min(so_far, joules[place])
            if not found and joules[place] <= best + math.log(1.05):
                found = count
        elif not found:
            violations += 1
        regrets.append(math.exp(so_far - best) - 1.0)
        power, slow = np.exp(problem.logs[:, place] + NOISE * draw.standard_normal(2))
        try:
            place = search.send((float(power), float(slow)))
        except StopIteration:
            break
    return found or BUDGET + 1, violations, regrets


def transferred(problem: Problem, others: list[Problem]) -> Prior:
    """What other workloads on the same settings have shown, with the physical model beside it."""
    shown = np.stack([other.logs - other.logs[:, [other.at]] for other in others])
    own = grey_box(problem.space, [TIME], problem.default)
    seen = Prior.of_samples(own.observables, torch.from_numpy(shown), own.scale_sd.tolist())
    return Prior.mixture([(1.0 - OWN_WEIGHT, seen), (OWN_WEIGHT, own)])


def measure(options: argparse.Namespace) -> list[Figure]:
    """Every search on every table."""
    if options.data is None:
        return [Figure("tables", None, "", note="give their folder with --data")]
    problems = tuning_tables.read(options.data)
    tables: dict[str, list[Problem]] = {}
    for problem in problems:
        tables.setdefault(problem.table, []).append(problem)
    seeds = range(3 if options.quick else 20)
    figures = []
    for table, whole in tables.items():
        chosen = tuning_tables.spread(whole) if len(whole) > 20 else whole
        chosen = chosen[:: 3 if options.quick else 1]
        same = all(other.space.settings == whole[0].space.settings for other in whole)
        figures += _table(table, chosen, whole if same else None, seeds)
    return figures


def _table(table: str, problems: list[Problem], others: list[Problem] | None, seeds: range) -> list[Figure]:
    colds = {id(problem): grey_box(problem.space, [TIME], problem.default) for problem in problems}
    ways: dict[str, Callable[[Problem, int], Search]] = {
        "random": random,
        "sweep (Zeus)": sweep,
        "plain": lambda problem, seed: ours(problem, seed, colds[id(problem)], plain=True),
        "ours, cold": lambda problem, seed: ours(problem, seed, colds[id(problem)]),
    }
    if others is not None:
        warms = {
            id(problem): transferred(problem, [other for other in others if other is not problem])
            for problem in problems
        }
        ways["ours, warm"] = lambda problem, seed: ours(problem, seed, warms[id(problem)])
    figures = []
    wanted = _wanted(table)
    for way, begin in ways.items():
        began_s = time.monotonic()
        results = [run(problem, begin(problem, seed), seed) for problem in problems for seed in seeds]
        took_s = (time.monotonic() - began_s) / len(results)
        counts, violations = [each[0] for each in results], [each[1] for each in results]
        told = f"{median(counts)} / {percentile(counts, 0.9)} / {fmean(violations):.2f}, {took_s:.2f} s each"
        say(f"{table}, {way}: {told}")
        limits = wanted.get(way, ("", "", ""))
        figures.append(Figure(f"{table}: {way}, trials, median", median(counts), "", limits[0]))
        figures.append(Figure(f"{table}: {way}, trials, p90", percentile(counts, 0.9), "", limits[1]))
        figures.append(Figure(f"{table}: {way}, violations", fmean(violations), "", limits[2]))
        for after in (5, 10):
            regret = median([each[2][min(after, len(each[2])) - 1] for each in results])
            figures.append(Figure(f"{table}: {way}, regret after {after}", regret, ""))
    return figures


def _wanted(table: str) -> dict[str, tuple[str, str, str]]:
    if table.startswith("core"):
        return {"ours, cold": ("<= 4", "<= 7", "<= 1"), "ours, warm": ("<= 2", "<= 4", "<= 0.3")}
    return {"ours, cold": ("<= 4", "<= 8", "<= 1")}


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark takes beside what all do."""
    parser.add_argument("--data", type=Path, help="folder of the measured tables")


if __name__ == "__main__":
    main("tuner", __doc__, measure, options)
