"""Chains of allocations: interruption with predicted waits, beside reactive and average-based submission.

Work of 2 to 7 days runs through allocations of at most 24 or 48 hours, on 1, 4 or 8 GPUs, in a simulated queue among
the jobs of the Philly trace (chain_world.py). Each week asks for a chosen part of the GPUs. The last third of the weeks
is held back: chains begin there, and each week's predictors are fitted to what was known at its begin.

Ways to submit a successor:

* `reactive`: when its predecessor ends.
* `average`: the mean wait of the last 20 jobs at least as large before that.
* `plan`: the wait if all jobs last until their limits, which is close to Slurm's own estimate.
* `boosted`: a quantile of the wait by gradient boosting, fitted to the log of past jobs.
* `back-tested`: `boosted` with a margin, and one or three successors that wait at once: the boldest rule that kept a
  budget of overlap in a replay of the weeks before the held-back ones, with a predictor of before.
* `at once`: as soon as its predecessor works.
* `forest`, `policy gradient`, `deep Q`, with `--learned`: other learned ways (chain_learning.py).

All ways have the same chains in the same queue, and know of it what `squeue` and `sacct` would tell. `back-tested`
replays the past in a queue that is first come, first served. The judge's queue gives large jobs a bonus. Both have EASY
backfill. Joules are modelled: 60 W for each GPU of the allocation that idles in an overlap.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf
from multiprocessing import get_context
from pathlib import Path
from random import Random

from ecoshare.contrib.chains.allocation_chain import Overlap
from ecoshare.contrib.chains.chain_rule import BOLDNESS, back_test, boldest
from ecoshare.contrib.chains.gradient_boosting import QUANTILE, GradientBoosting
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.provisioner import Provisioner
from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.contrib.chains.simulated_chain import (
    BackfillQueue,
    ChainResult,
    ChainSpec,
    ChainTotals,
    QueueReplay,
    replayed,
    run_chain,
)
from ecoshare.contrib.chains.wait_predictor import (
    AverageWait,
    PlannedWait,
    Reactive,
    WaitPredictor,
    WaitSample,
    logged_samples,
)
from scripts.bench.benchmarking import DataOptions, Figure, add_data, run_benchmark, say
from scripts.bench.chain_world import CLUSTERS, DAY_S, WEEK_S, World, read_clusters, world

HOUR_S = 3600.0
LOADS, LIMITS_H = (0.65, 0.85), (24, 48)
QUICK_CLUSTERS, QUICK_LOADS, QUICK_LIMITS_H = ("103959",), (0.85,), (48,)
SEED = 1
"""Seed of the drawn limits and copies. The rules were made with another one, on training weeks."""

SIZES, DAYS = (1, 4, 8), (2, 3, 4, 5, 6, 7)
CHAINS, QUICK_CHAINS = 8, 4
BACK_WEEKS, BACK_CHAINS = 3, 8
"""Weeks before the held-back ones in which rules are tried, and the number of chains that try them."""

LOGGED = 3000
"""Number of samples to which the predictor of a week is fitted, about."""

BEST, LEARNED = "back-tested", "boosted"
WAYS = ("reactive", "average", "plan", LEARNED, BEST, "at once")
FOREST, GRADIENT, DEEP_Q = "forest", "policy gradient", "deep Q"
OTHERS = (FOREST, GRADIENT, DEEP_Q)
"""Ways of `--learned`, with successors that take over. The forest has the margin and successors of `back-tested`."""

TRAINING_CHAINS, TRAINING_ROUNDS = 40, 6


class ChainOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        workers: Number of processes.
        quantile: Quantile of the wait that a successor is given.
        learned: Whether other learned ways are trained, too.
        clusters: Clusters of the trace.
    """

    workers: int
    quantile: float
    learned: bool
    clusters: list[str]


@dataclass(frozen=True)
class Case:
    """One world, its number of chains, and whether other learned ways are trained."""

    cluster: str
    load: float
    limit_h: int
    chains: int
    quantile: float
    learned: bool = False


@dataclass(frozen=True)
class Judged:
    """Chain under one way.

    Attributes:
        case: World of the chain.
        way: One of `WAYS`, or of `OTHERS`.
        overlap: Conduct of a successor that comes early.
        result: Result of the chain.
    """

    case: Case
    way: str
    overlap: Overlap
    result: ChainResult


@dataclass(frozen=True)
class AtOnce:
    """Predictor that expects an endless wait."""

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Return infinity."""
        return inf


def measure(options: ChainOptions) -> list[Figure]:
    """All figures."""
    if options.data is None:
        return [Figure("chains", None, "", note="give the folder of the traces with --data")]
    quick = options.quick
    worlds = product(
        QUICK_CLUSTERS if quick else options.clusters,
        QUICK_LOADS if quick else LOADS,
        QUICK_LIMITS_H if quick else LIMITS_H,
    )
    chains = QUICK_CHAINS if quick else CHAINS
    cases = [Case(*each, chains, options.quantile, options.learned) for each in worlds]
    os.environ["OMP_NUM_THREADS"] = "1"  # scikit-learn's threads cost more than they bring for one row
    judged: list[Judged] = []
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for case, found in zip(cases, pool.map(partial(judge, options.data), cases), strict=True):
            judged += found
            say(f"{case.cluster}, load {case.load:g}, {case.limit_h} h: {line(found)}")
    return figures(judged)


def line(judged: Sequence[Judged]) -> str:
    """Hours of interruption a chain and overlap of each way, for messages on progress."""
    parts = []
    for way, overlap in dict.fromkeys((each.way, each.overlap) for each in judged):
        totals = ChainTotals.of(select(judged, way, overlap))
        hours = totals.interruption_s / totals.chains / HOUR_S
        parts.append(f"{way} {overlap.value} {hours:.1f} h, {100 * totals.overlap_share:.0f} %")
    return "; ".join(parts)


def select(judged: Sequence[Judged], way: str, overlap: Overlap) -> list[ChainResult]:
    """Results of one way."""
    return [each.result for each in judged if each.way == way and each.overlap is overlap]


def figures(judged: Sequence[Judged]) -> list[Figure]:
    """Figures of each way over all worlds, then by load and by limit."""
    groups = {"": list(judged)}
    for case in dict.fromkeys(each.case for each in judged):
        groups.setdefault(f", load {case.load:g}", []).extend(each for each in judged if each.case == case)
        groups.setdefault(f", limit {case.limit_h} h", []).extend(each for each in judged if each.case == case)
    return [
        figure
        for group, overlap, way in product(groups, (Overlap.TAKE_OVER, Overlap.IDLE), (*WAYS, *OTHERS))
        if select(groups[group], way, overlap)
        for figure in figures_of(groups[group], overlap, way, group)
    ]


def figures_of(judged: Sequence[Judged], overlap: Overlap, way: str, group: str) -> list[Figure]:
    """Figures of one way in a group of worlds; the goals are those of the best way over all."""
    reactive, totals = (ChainTotals.of(select(judged, each, overlap)) for each in ("reactive", way))
    name, is_goal = f"{overlap.value}{group}: {way}", way == BEST and not group
    ratio = totals.interruption_s / reactive.interruption_s if reactive.interruption_s else None
    mean_h = totals.interruption_s / totals.chains / HOUR_S
    note = f"{mean_h:.1f} h a chain, {totals.hand_overs} hand-overs of {totals.chains} chains"
    found = [
        Figure(f"{name}, interruption / reactive", ratio, "x", "<= 0.2" if is_goal else "", note),
        Figure(f"{name}, overlap", 100.0 * totals.overlap_share, "%", "<= 10" if is_goal else ""),
    ]
    if group:
        return found
    avoided_h = (reactive.interruption_s - totals.interruption_s) / HOUR_S
    return [
        *found,
        Figure(f"{name}, chains without interruption", 100.0 * totals.uninterrupted_share, "%"),
        Figure(f"{name}, modelled overlap of a chain", totals.overlap_j / totals.chains / 1e6, "MJ"),
        Figure(
            f"{name}, modelled overlap for an hour less of interruption",
            totals.overlap_j / avoided_h / 1e6 if avoided_h > 0.0 else None,
            "MJ",
        ),
    ]


def judge(data: Path, case: Case, training_only: bool = False) -> list[Judged]:
    """Chains of a world under all ways.

    Args:
        data: Folder of the traces.
        case: The world.
        training_only: Whether the last two weeks of the training part take the place of the held-back ones, which are
            not looked at then. This is for work on the rules.
    """
    here = world(case.cluster, read_clusters(data)[case.cluster], case.load, case.limit_h * HOUR_S, SEED)
    held_back = here.first_held_back
    last = len(here.weeks_s) - 1
    if training_only:
        last, held_back = held_back, held_back - 2
    begin_s, end_s = here.weeks_s[held_back], here.weeks_s[last]
    replay = QueueReplay(here.queue(), here.jobs)
    log = replayed(here.jobs, here.queue())
    best = best_rules(here, log, held_back, case.quantile)
    others = other_rules(here, log, held_back, case.quantile, best[Overlap.TAKE_OVER]) if case.learned else {}
    found, fitted = [], dict[int, dict[str, WaitPredictor]]()
    for start_s, chain in draw_chains(here, begin_s, end_s - WEEK_S, case.chains):
        replay.advance(start_s)
        week = max(place for place, week_s in enumerate(here.weeks_s) if week_s <= start_s)
        if week not in fitted:
            fitted[week] = predictors(here, log, week, case.quantile)
        for overlap, way in product(Overlap, WAYS):
            known = fitted[week]
            if way == BEST:
                part, ahead = best[overlap]
                rule = Provisioner(known[LEARNED], part * here.limit_s, ahead=ahead)
            else:
                rule = Provisioner(known[way])
            found.append(Judged(case, way, overlap, run_chain(replay.copy(), replace(chain, overlap=overlap), rule)))
        for way, rule in others.items():
            now = rule if way == FOREST else replace(rule, predictor=fitted[week][LEARNED])
            found.append(Judged(case, way, Overlap.TAKE_OVER, run_chain(replay.copy(), chain, now)))
    return found


def draw_chains(here: World, begin_s: float, end_s: float, count: int) -> list[tuple[float, ChainSpec]]:
    """Chains that begin between two moments, in the order of time."""
    random = Random(f"chains {here.name} {begin_s:.0f}")
    starts_s = sorted(random.uniform(begin_s, end_s) for _ in range(count))
    return [
        (start_s, ChainSpec(min(random.choice(SIZES), here.gpus // 2), here.limit_s, random.choice(DAYS) * DAY_S))
        for start_s in starts_s
    ]


def best_rules(here: World, log: Sequence[BatchJob], week: int, quantile: float) -> dict[Overlap, tuple[float, int]]:
    """Margin (part of the limit) and successors ahead that a back test chooses before `week`, for each overlap."""
    first, until_s = week - BACK_WEEKS, here.weeks_s[week]
    known = predictors(here, log, first, quantile)
    rules = [Provisioner(known[LEARNED], part * here.limit_s, ahead=ahead) for part, ahead in BOLDNESS]
    chains = draw_chains(here, here.weeks_s[first], until_s - WEEK_S, BACK_CHAINS)
    best = {}
    for overlap in Overlap:
        these = [(at_s, replace(chain, overlap=overlap)) for at_s, chain in chains]
        reactive, *others = back_test(here.jobs, here.gpus, these, [Provisioner(known["reactive"]), *rules], until_s)
        best[overlap] = part, ahead = BOLDNESS[others.index(boldest(reactive, others))]
        say(f"{here.name}, {overlap.value}: margin of {part:g} of the limit, {ahead} ahead")
    return best


def other_rules(
    here: World, log: Sequence[BatchJob], week: int, quantile: float, best: tuple[float, int]
) -> dict[str, Provisioner]:
    """Rules of the other learned ways, with what was known before `week`."""
    from scripts.bench import chain_learning

    first, until_s = week - BACK_WEEKS, here.weeks_s[week]
    boosted = predictors(here, log, first, quantile)[LEARNED]
    assert isinstance(boosted, GradientBoosting)
    known = QueueReplay(BackfillQueue(here.gpus), [job for job in here.jobs if job.submit_s < until_s])
    drawn = draw_chains(here, here.weeks_s[first], until_s - WEEK_S, TRAINING_CHAINS)
    chains = chain_learning.training_chains(known, drawn, TRAINING_ROUNDS)
    usual = Provisioner(boosted, chain_learning.MARGIN * here.limit_s, ahead=chain_learning.AHEAD)
    forest = chain_learning.RandomForest(samples(here, log, week), quantile)
    part, ahead = best
    return {
        FOREST: Provisioner(forest, part * here.limit_s, ahead=ahead),
        GRADIENT: chain_learning.policy_gradient(boosted, chains, usual),
        DEEP_Q: chain_learning.deep_q(boosted, chains),
    }


def predictors(here: World, log: Sequence[BatchJob], week: int, quantile: float) -> dict[str, WaitPredictor]:
    """Predictor of each way, with what was known at the begin of a week."""
    return {
        "reactive": Reactive(),
        "average": AverageWait(),
        "plan": PlannedWait(),
        LEARNED: GradientBoosting(samples(here, log, week), quantile),
        "at once": AtOnce(),
    }


def samples(here: World, log: Sequence[BatchJob], week: int) -> list[WaitSample]:
    """Waits that were known at the begin of a week."""
    until_s = here.weeks_s[week]
    past = [job for job in log if job.submit_s < until_s]
    return logged_samples(past, here.gpus, until_s, max(1, len(past) // LOGGED))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data(parser)
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS, choices=CLUSTERS, help="clusters of the trace")
    parser.add_argument("--learned", action="store_true", help="train other learned ways, too: minutes for each world")
    parser.add_argument("--quantile", type=float, default=QUANTILE, metavar="Q", help="quantile of the wait")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("chains", __doc__, measure, ChainOptions, add_options)


if __name__ == "__main__":
    main()
