"""Measurements that it takes to tune a device: ours against other searches.

Each search begins with the default setting, measures with 2 % noise, and must keep every time within 1.1 of the
default's. Problems are measured tables (`--data DIR`) and invented workloads (`--invented N`), which have another form
than the tuner's own model. The figures are the trials until one is within 5 % of the best possible under that limit by
the table itself, the trials before it that break the limit, and the joules of all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from scripts.bench import tuner_searches as searches
from scripts.bench import tuner_tables
from scripts.bench.benchmarking import DataOptions, Figure, add_data, median, percentile, run_benchmark, say
from scripts.bench.tuner_searches import MOST, Outcome, Search
from scripts.bench.tuner_tables import Problem
from tuner import ConstrainedTuner, Evaluation, Knob, Limit, Role, Setting, Space, energy

SEEDS, QUICK_SEEDS = 20, 3
SLOW_SEEDS, QUICK_SLOW_SEEDS = 3, 1
"""Number of seeds for optuna's samplers, which fit anew in every trial."""

Way = Callable[[Problem, int], Search]


class TunerOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        invented: Number of spaces of either kind on which workloads are invented.
    """

    invented: int


_NO_LIMITS = ("", "", "")


def measure(options: TunerOptions) -> list[Figure]:
    """Figures of every search on every table, and of the tuner's own speed."""
    figures = latency()
    few, many = (QUICK_SLOW_SEEDS, QUICK_SEEDS) if options.quick else (SLOW_SEEDS, SEEDS)
    if options.data is None:
        figures.append(Figure("tables", None, "", note="give their folder with --data"))
    else:
        for table, whole in _by_table(tuner_tables.read(options.data)).items():
            chosen = tuner_tables.spread(whole) if len(whole) > 20 else whole
            figures += _table(table, chosen[:: 3 if options.quick else 1], whole, few, many)
    for table, whole in _by_table(tuner_tables.invent(options.invented)).items():
        figures += _table(table, whole, whole, 1, 1)
    return figures


def _by_table(problems: list[Problem]) -> dict[str, list[Problem]]:
    tables: dict[str, list[Problem]] = {}
    for problem in problems:
        tables.setdefault(problem.table, []).append(problem)
    return tables


def _table(table: str, problems: list[Problem], whole: list[Problem], few: int, many: int) -> list[Figure]:
    """Figures of every search on the problems of a table; `whole` has all problems of the table.

    Args:
        few: Seeds for slow searches.
        many: Seeds for the others.
    """
    figures = [
        Figure(f"{table}: default only, regret", median([_regret(each, each.at) for each in problems]), ""),
        *_static(table, problems, whole),
    ]
    ways: dict[str, tuple[int, Way]] = {
        "random": (many, searches.random),
        "grid": (1, searches.grid),
        "sweep (Zeus)": (1, searches.sweep),
        "optuna GP": (few, partial(searches.optuna_search, sampler="GPSampler")),
        "optuna TPE": (few, partial(searches.optuna_search, sampler="TPESampler")),
        "plain": (many, searches.plain),
        "ours, cold": (many, searches.ours),
    }
    if all(other.space.settings == whole[0].space.settings for other in whole):
        warms = {each: searches.warm(each, whole) for each in problems}
        ways["ours, warm"] = many, lambda problem, seed: searches.ours(problem, seed, warms[problem])
    wanted = _wanted(table)
    for name, (seeds, way) in ways.items():
        began_s = time.monotonic()
        outcomes = [searches.run(each, way(each, seed), seed) for each in problems for seed in range(seeds)]
        took_s = (time.monotonic() - began_s) / len(outcomes)
        figures += _figures(f"{table}: {name}", outcomes, wanted.get(name, _NO_LIMITS), took_s)
    return figures


def _figures(name: str, outcomes: list[Outcome], wanted: tuple[str, str, str], took_s: float) -> list[Figure]:
    counts = [each.trials for each in outcomes]
    middle, high, broken = median(counts), percentile(counts, 0.9), fmean(each.violations for each in outcomes)
    spent = fmean(each.spent for each in outcomes)
    say(f"{name}: {middle:g} / {high:g} / {broken:.2f}, joules {spent:.1f}, {took_s:.2f} s each")
    return [
        Figure(f"{name}, trials, median", middle, "", wanted[0]),
        Figure(f"{name}, trials, p90", high, "", wanted[1]),
        Figure(f"{name}, violations", broken, "", wanted[2]),
        Figure(f"{name}, joules spent", spent, "", note="of one trial at the default"),
        *(Figure(f"{name}, regret after {n}", median([each.regret(n) for each in outcomes]), "") for n in (5, 10)),
    ]


def _static(table: str, problems: list[Problem], whole: list[Problem]) -> list[Figure]:
    """Figures of the best setting of the other workloads, which takes no search."""
    places = [searches.best_static(each, whole) for each in problems]
    regrets = [_regret(each, place) for each, place in zip(problems, places, strict=True)]
    broken = [float(not each.feasible(MOST)[place]) for each, place in zip(problems, places, strict=True)]
    return [
        Figure(f"{table}: best static, regret", median(regrets), ""),
        Figure(f"{table}: best static, breaks the limit", fmean(broken), "", note="part of the workloads"),
    ]


def _regret(problem: Problem, place: int) -> float:
    return math.exp(problem.joules[place] - problem.joules[problem.feasible(MOST)].min()) - 1.0


def _wanted(table: str) -> dict[str, tuple[str, str, str]]:
    if table.startswith("core"):
        return {"ours, cold": ("<= 4", "<= 7", "<= 1"), "ours, warm": ("<= 2", "<= 4", "<= 0.3")}
    return {"ours, cold": ("<= 4", "<= 8" if "limit" in table else "<= 7", "<= 1")}


def latency() -> list[Figure]:
    """Time of `ask` and `tell` on 2,000 settings after 50 trials, with limits on three jobs and one thread."""
    cores, limits = np.linspace(300.0, 1500.0, 100).tolist(), np.linspace(100.0, 300.0, 20).tolist()
    space = Space.product(Knob("core", tuple(cores), Role.CORE_CLOCK), Knob("limit", tuple(limits), Role.POWER_LIMIT))
    default = {"core": 1500.0, "limit": 300.0}
    names = ("a", "b", "c")
    draw = np.random.default_rng(0)

    def observe(setting: Setting) -> dict[str, float]:
        clock, limit = float(setting["core"]) / 1500.0, float(setting["limit"])
        values = {"power_w": min(limit, 60.0 + 220.0 * clock**2)}
        values |= {name: clock ** -(0.3 * share) for share, name in enumerate(names, start=1)}
        return {name: value * math.exp(0.02 * draw.standard_normal()) for name, value in values.items()}

    places = draw.permutation(len(space))[:48]
    tried: list[Setting] = [default, *(space.settings[int(place)] for place in places)]
    began_s = time.perf_counter()
    tuned = ConstrainedTuner(space, energy(dict.fromkeys(names, 100.0)), [Limit(n, MOST) for n in names], default)
    made_s = time.perf_counter() - began_s
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.json"
        trials = [Evaluation(setting, observe(setting)).as_dict() for setting in tried]
        path.write_text(json.dumps({"schema_version": 1, "default": default, "trials": trials}))
        tuned.load(path)
    setting = tuned.ask()
    told_s, asked_s = [], []
    for _ in range(3):
        began_s = time.perf_counter()
        tuned.tell(setting, observe(setting))
        told_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        setting = tuned.ask()
        asked_s.append(time.perf_counter() - began_s)
    size = "2,000 settings, 50 trials, 3 jobs"
    return [
        Figure("ask", 1000.0 * median(asked_s), "ms", "<= 250", size),
        Figure("tell", 1000.0 * median(told_s), "ms", "", size),
        Figure("a new tuner", 1000.0 * made_s, "ms", "", "2,000 settings, 3 jobs: draws the physical prior"),
    ]


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument(
        "--invented", type=int, default=0, metavar="N", help="also invented workloads, on N spaces of either kind"
    )


def main() -> None:
    """Run it from the command line."""
    run_benchmark("tuner", __doc__, measure, TunerOptions, _add_options)


if __name__ == "__main__":
    main()
