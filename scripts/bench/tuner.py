"""Measurements that it takes to tune a device: ours against other searches.

Each search begins with the default setting, measures with 2 % noise, and must keep every time within 1.1 of the
default's. Problems are measured tables (`--data DIR`) and invented workloads (`--invented N`), which have another form
than the tuner's own model. The figures are the trials until one is within 5 % of the best possible under that limit by
the table itself, the trials before it that break the limit, and the joules of all of them.

A third of the workloads of each measured table is held out: they were not looked at while the searches of today were
made. Earlier versions were judged on all of them, so they are not unseen by everything that the tuner has learned.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from statistics import fmean

import torch

from scripts.bench import tuner_searches as searches
from scripts.bench import tuner_tables
from scripts.bench.benchmarking import DataOptions, Figure, add_data, median, percentile, run_benchmark, say
from scripts.bench.tuner_before import COMMIT, Before, before
from scripts.bench.tuner_costs import costs
from scripts.bench.tuner_searches import MOST, Outcome, Search
from scripts.bench.tuner_tables import Problem

SEEDS, QUICK_SEEDS = 20, 2
SLOW_SEEDS, QUICK_SLOW_SEEDS = 3, 1
"""Number of seeds for the samplers of optuna and for botorch, which fit anew in every trial."""

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
    torch.set_num_threads(1)  # the tuner uses one, too, since jobs train beside it
    figures: list[Figure] = []
    tables: list[_Table] = []
    if options.data is None:
        figures.append(Figure("tables", None, "", note="give their folder with --data"))
    else:
        for name, whole in _by_table(tuner_tables.read(options.data)).items():
            chosen = tuner_tables.spread(whole) if len(whole) > 20 else whole
            tables.append(_Table(name, chosen[:: 4 if options.quick else 1], whole, options))
    for name, whole in _by_table(tuner_tables.invent(options.invented)).items():
        tables.append(_Table(name, whole, whole, options))
    with nullcontext() if options.quick else before() as earlier:
        figures += costs(None if earlier is None else earlier.folder, options.quick)
        for table in tables:
            figures += table.figures(earlier)
    return figures


def _by_table(problems: list[Problem]) -> dict[str, list[Problem]]:
    tables: dict[str, list[Problem]] = {}
    for problem in problems:
        tables.setdefault(problem.table, []).append(problem)
    return tables


class _Table:
    """One table of the benchmark.

    Attributes:
        chosen: The problems that are searched.
        whole: All problems of the table.
    """

    def __init__(self, name: str, chosen: list[Problem], whole: list[Problem], options: TunerOptions) -> None:
        self.name, self.chosen, self.whole = name, chosen, whole
        self._data = None if name.startswith("invented") else options.data
        self._invented = options.invented
        few, many = (QUICK_SLOW_SEEDS, QUICK_SEEDS) if options.quick else (SLOW_SEEDS, SEEDS)
        self._is_quick = options.quick
        self._few, self._many = (few, many) if self._data else (1, 1)
        self._is_one_space = all(other.space.settings == whole[0].space.settings for other in whole)

    def figures(self, earlier: Before | None) -> list[Figure]:
        """Figures of every search."""
        figures = [
            Figure(f"{self.name}: default only, regret", median([_regret(each, each.at) for each in self.chosen]), ""),
            *_static(self.name, self.chosen, self.whole),
        ]
        few, many = self._few, self._many
        slow = self.chosen[: 1 if self._is_quick else None]
        figures += self._searched("random", many, searches.random)
        figures += self._searched("grid", 1, searches.grid)
        figures += self._searched("sweep (Zeus)", 1, searches.sweep)
        figures += self._searched("optuna GP", few, partial(searches.optuna_search, sampler="GPSampler"), slow)
        figures += self._searched("optuna TPE", few, partial(searches.optuna_search, sampler="TPESampler"), slow)
        figures += self._searched("botorch", few, searches.botorch_search, slow)
        figures += self._searched("ours without its prior", many, searches.plain)
        figures += self._before(earlier, is_warm=False)
        figures += self._searched("ours, cold", many, searches.ours)
        if self._is_one_space:
            warms = {each: searches.warm(each, self.whole) for each in self.chosen}
            figures += self._before(earlier, is_warm=True)
            figures += self._searched(
                "ours, warm", many, lambda problem, seed: searches.ours(problem, seed, warms[problem])
            )
        return figures

    def _searched(self, name: str, seeds: int, way: Way, chosen: Sequence[Problem] = ()) -> list[Figure]:
        """Figures of one search, on all chosen problems unless others are given."""
        chosen = chosen or self.chosen
        began_s = time.monotonic()
        outcomes = [searches.run(each, way(each, seed), seed) for each in chosen for seed in range(seeds)]
        return self._parts(name, chosen, outcomes, (time.monotonic() - began_s) / len(outcomes))

    def _before(self, earlier: Before | None, is_warm: bool) -> list[Figure]:
        name = f"ours before, {'warm' if is_warm else 'cold'}"
        if earlier is None:
            why = "left out by --quick" if self._is_quick else f"the repository lacks commit {COMMIT[:7]}"
            return [Figure(f"{self.name}: {name}", None, "", note=why)]
        began_s = time.monotonic()
        outcomes = earlier.outcomes(self.chosen, self._many, is_warm, self._data, self._invented)
        return self._parts(name, self.chosen, outcomes, (time.monotonic() - began_s) / len(outcomes))

    def _parts(self, name: str, chosen: Sequence[Problem], outcomes: list[Outcome], took_s: float) -> list[Figure]:
        """Figures of a search on all chosen problems, and on those that are held out."""
        wanted = _wanted(self.name).get(name, _NO_LIMITS)
        seeds = len(outcomes) // len(chosen)
        hidden = [
            outcome
            for place, each in enumerate(chosen)
            if each.is_held_out
            for outcome in outcomes[place * seeds : (place + 1) * seeds]
        ]
        figures = _figures(f"{self.name}: {name}", outcomes, wanted, took_s)
        return figures + (_figures(f"{self.name}, held out: {name}", hidden, _NO_LIMITS, took_s) if hidden else [])


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
