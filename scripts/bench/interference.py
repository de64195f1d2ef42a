"""Jobs that should share a GPU: predicted speeds of pairs against Gavel's measured ones (`--data DIR`).

There are 26 types of jobs that fit on one GPU. In each round some are left out. A pair is judged if both of its types
are new, or one of them. Two judgements of the same model stand side by side:

* `ours`: the hyperparameters never saw a pair of a left-out type. They are fitted to the pairs of the other types in
  all tables. Then the model sees the pairs of the other types in the judged table, as a live run does with the pairs
  that it has measured, and fits again near those values. It knows script and iteration time of each type: all that a
  profile of a live run and the tables have in common. A profile has busy, memory busy and watts, too, which no table of
  pairs has; they are left out here, and not invented.
* `ours, kind`: the hyperparameters are fitted to all pairs of all tables, the judged ones included. Batch size and the
  gain from a V100 over the two other GPUs are known of each type. No live run has these.

Rounds leave out 8 types, or all types of two scripts, or a tenth of the pairs. The gain of a rule is the sum of the
excess of the combined speed over 1 of the pairs that it packs, as a part of the sum of all positive ones. 95 % of the
errors of the combined speed should be within 1.96 of the predicted standard deviations. Pairs of zeros do not fit and
are left out.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import numpy as np
from threadpoolctl import threadpool_limits

from ecoshare.knowledge.advisers.interference_model import SHIPPED, InterferenceModel, SpeedEstimate
from scripts.bench.benchmarking import DataOptions, Figure, add_data, run_benchmark, say
from scripts.bench.interference_tables import Pair, Table, script_of, table_of

TABLES = (("simulation", "v100"), ("simulation", "k80"), ("oracle", "k80"), ("oracle", "v100"), ("oracle", "p100"))
WANTED = {"simulation v100", "simulation k80", "oracle k80"}
"""Tables on which packing every pair gets less than 0.9 of the best gain."""

KNOWN = 0.7
ROUNDS, QUICK_ROUNDS = 40, 5
SCRIPTS_LEFT_OUT, QUICK_SCRIPT_ROUNDS = 2, 3
FOLDS = 10

_NEUTRAL = dict.fromkeys(SHIPPED, 0.0) | {
    "level": math.log(0.05),
    "suffers": math.log(0.04),
    "hurts": math.log(0.04),
    "own_suffers": math.log(0.005),
    "own_hurts": math.log(0.005),
    "together": math.log(0.04),
    "alike": math.log(0.01),
    "pair": math.log(0.005),
    "noise": math.log(0.0004),
}
"""Centre of the search for hyperparameters without `SHIPPED`."""

_NOTES = {
    "ours": "left-out types unseen by the hyperparameters; script and iteration time known; no busy, watts, memory",
    "ours, one measured": "as ours, with each new type measured beside one known type",
    "ours, kind": "hyperparameters of all pairs; batch size and gain from a V100 known",
    "utilisation sum": "a stand-in: Gavel has no utilisations",
}


class InterferenceOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        fit: Whether to print the hyperparameters of all pairs, which `SHIPPED` has.
        workers: Processes; None if the number of processors is unknown.
    """

    fit: bool
    workers: int | None


@dataclass(frozen=True)
class Round:
    """Types and pairs that are left out in a round.

    Attributes:
        unit: Left-out units, as figures name them: `type`, `script` or `pair`.
        types: Types of which no pair is known.
        pairs: Pairs that are not known, although both types are.
        seed: Draws of the round.
    """

    unit: str
    types: frozenset[str]
    pairs: frozenset[Pair]
    seed: int

    def known(self, pairs: Collection[Pair]) -> list[Pair]:
        """Pairs that the hyperparameters and the model may see."""
        return [each for each in pairs if self.types.isdisjoint(each) and each not in self.pairs]

    def judged(self, pairs: Collection[Pair]) -> dict[str, list[Pair]]:
        """Pairs that are judged, by the name of their set."""
        both = [each for each in pairs if self.types.issuperset(each)]
        one = [each for each in pairs if not self.types.isdisjoint(each) and not self.types.issuperset(each)]
        alone = [each for each in pairs if each in self.pairs]
        sets = {f"both {self.unit}s new": both, f"one {self.unit} new": one, "only the pair new": alone}
        return {name: each for name, each in sets.items() if each}


@dataclass
class Score:
    """Score of a rule, summed over rounds."""

    gained: float = 0.0
    possible: float = 0.0
    right: list[float] = field(default_factory=list)
    squared: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)

    def add(self, packs: Sequence[bool], truth: Sequence[float]) -> None:
        """Add the decisions in a round, and the true combined speeds of the pairs."""
        self.gained += sum(total - 1.0 for total, pack in zip(truth, packs, strict=True) if pack)
        self.possible += sum(max(0.0, total - 1.0) for total in truth)
        self.right += [float(pack == (total > 1.0)) for total, pack in zip(truth, packs, strict=True)]

    def predicted(self, guesses: Sequence[SpeedEstimate], truth: Sequence[float]) -> None:
        """Add the combined speeds that the rule expected, and the decisions that follow from them."""
        self.add([guess.mean > 1.0 for guess in guesses], truth)
        self.squared += [(guess.mean - total) ** 2 for guess, total in zip(guesses, truth, strict=True)]
        off = [abs(guess.mean - total) / guess.sd for guess, total in zip(guesses, truth, strict=True)]
        self.inside += [float(each < 1.96) for each in off]

    def merge(self, other: Score) -> None:
        """Add the sums of other rounds."""
        self.gained += other.gained
        self.possible += other.possible
        self.right += other.right
        self.squared += other.squared
        self.inside += other.inside


Place = tuple[str, str, str]
"""Table, set of judged pairs, and rule."""


def measure(options: InterferenceOptions) -> list[Figure]:
    """All tables; a note if no folder of them is given."""
    if options.data is None:
        return [Figure("tables", None, "", note="give their folder with --data")]
    tables = _tables(options.data)
    if options.fit:
        _say_fitted(tables)
    kind = centre(tables, {each.name: list(each.speeds) for each in tables})
    scores: dict[Place, Score] = {}
    rounds = list(_rounds(tables, options.quick))
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        found = pool.map(partial(judge, options.data, kind), rounds)
        for number, (each, more) in enumerate(zip(rounds, found, strict=True), 1):
            say(f"{number} of {len(rounds)}: {each.unit} {each.seed}")
            for place, score in more.items():
                scores.setdefault(place, Score()).merge(score)
    return [figure for place in sorted(scores, key=_order) for figure in _figures(place, scores[place])]


def _rounds(tables: Sequence[Table], quick: bool) -> Iterator[Round]:
    names = sorted({name for each in tables for name in each.traits})
    for seed in range(QUICK_ROUNDS if quick else ROUNDS):
        mixed = np.random.default_rng(seed).permutation(len(names))
        left_out = frozenset(names[place] for place in mixed[round(KNOWN * len(names)) :])
        yield Round("type", left_out, frozenset(), seed)
    scripts = list(combinations(sorted({script_of(name) for name in names}), SCRIPTS_LEFT_OUT))
    chosen = np.random.default_rng(0).permutation(len(scripts))
    for seed, place in enumerate(chosen[: QUICK_SCRIPT_ROUNDS if quick else None]):
        left_out = frozenset(name for name in names if script_of(name) in scripts[place])
        yield Round("script", left_out, frozenset(), seed)
    pairs = sorted({pair for each in tables for pair in each.speeds})
    folds = np.random.default_rng(0).permutation(len(pairs)) % FOLDS
    for fold in range(0 if quick else FOLDS):
        unknown = frozenset(pair for pair, of in zip(pairs, folds, strict=True) if of == fold)
        yield Round("pair", frozenset(), unknown, fold)


def judge(data: Path, kind: Mapping[str, float], left_out: Round) -> dict[Place, Score]:
    """Scores of all rules on all tables in a round.

    Args:
        kind: Hyperparameters of all pairs.
    """
    # The matrices are small, and several threads would wait for each other.
    with threadpool_limits(1, "blas"):
        return _judge(data, kind, left_out)


def _judge(data: Path, kind: Mapping[str, float], left_out: Round) -> dict[Place, Score]:
    tables, scores = _tables(data), {}
    profiled = [each.profiled() for each in tables]
    # No pair of a left-out type, on any GPU, has a part in these hyperparameters.
    honest = centre(profiled, {each.name: left_out.known(each.speeds) for each in profiled})
    for full, table in zip(tables, profiled, strict=True):
        known = left_out.known(table.speeds)
        models = {"ours": InterferenceModel(table.traits, table.seen(known), centre=honest)}
        if left_out.types:
            more = _first_of_each(table, left_out)
            models["ours, one measured"] = InterferenceModel(table.traits, table.seen(known + more), centre=honest)
            models["ours, kind"] = InterferenceModel(full.traits, full.seen(known), centre=kind)
        limit = _best_limit(table, known)
        for judged, pairs in left_out.judged(table.speeds).items():
            truth = [sum(table.speeds[pair]) for pair in pairs]
            for rule, model in models.items():
                # The measured pairs have one new type: only pairs of two new types remain to be judged.
                if rule != "ours, one measured" or judged.startswith("both"):
                    score = scores[table.name, judged, rule] = Score()
                    score.predicted([model.combined(*pair) for pair in pairs], truth)
            packs = {
                "always": [True] * len(pairs),
                "utilisation sum": [table.used[one] + table.used[other] <= limit for one, other in pairs],
            }
            for rule, chosen in packs.items():
                scores[table.name, judged, rule] = Score()
                scores[table.name, judged, rule].add(chosen, truth)
    return scores


def centre(tables: Sequence[Table], pairs: Mapping[str, Sequence[Pair]]) -> dict[str, float]:
    """Mean of the hyperparameters that fit these pairs of each table, without `SHIPPED`."""
    with threadpool_limits(1, "blas"):
        fitted = [
            InterferenceModel(each.traits, each.seen(pairs[each.name]), centre=_NEUTRAL).hyperparameters
            for each in tables
        ]
    return {name: fmean(each[name] for each in fitted) for name in SHIPPED}


@cache
def _tables(data: Path) -> list[Table]:
    return [table_of(data, *each) for each in TABLES]


def _order(place: Place) -> tuple[int, Place]:
    return [f"{file} {gpu}" for file, gpu in TABLES].index(place[0]), place


def _figures(place: Place, score: Score) -> list[Figure]:
    table, judged, rule = place
    name, note = f"{table}, {judged}: {rule}", _NOTES.get(rule, "")
    wanted = ">= 0.9" if rule == "ours" and judged == "both types new" and table in WANTED else ""
    figures = [
        Figure(f"{name}, gain", score.gained / score.possible, "", wanted, note),
        Figure(f"{name}, right decisions", fmean(score.right), ""),
    ]
    if score.squared:
        error = math.sqrt(fmean(score.squared))
        figures.append(Figure(f"{name}, error of combined speed", error, "", note="root of mean square"))
        figures.append(Figure(f"{name}, within 1.96 sd", fmean(score.inside), ""))
    return figures


def _first_of_each(table: Table, left_out: Round) -> list[Pair]:
    """One pair with a known type for each new type."""
    draw, chosen = np.random.default_rng(left_out.seed), []
    for name in sorted(left_out.types):
        pairs = [pair for pair in table.speeds if name in pair and not left_out.types.issuperset(pair)]
        if pairs:
            chosen.append(pairs[int(draw.integers(len(pairs)))])
    return chosen


def _best_limit(table: Table, pairs: Sequence[Pair]) -> float:
    """Limit of the sum of utilisations that would have gained the most on known pairs."""
    ordered = sorted((table.used[one] + table.used[other], sum(table.speeds[one, other]) - 1.0) for one, other in pairs)
    gains = np.cumsum([gain for _, gain in ordered])
    best = int(np.argmax(gains))
    return ordered[best][0] if gains[best] > 0.0 else -1.0


def _say_fitted(tables: Sequence[Table]) -> None:
    """Hyperparameters for a live run: `SHIPPED`."""
    profiled = [each.profiled() for each in tables]
    for name, value in centre(profiled, {each.name: list(each.speeds) for each in profiled}).items():
        say(f'    "{name}": {value:.1f},  now {SHIPPED[name]:g}')


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--fit", action="store_true", help="also say the hyperparameters for a live run")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes; the figures do not depend on it"
    )


def main() -> None:
    """Run it from the command line."""
    run_benchmark("interference", __doc__, measure, InterferenceOptions, _add_options)


if __name__ == "__main__":
    main()
