"""Jobs that should share a GPU: predicted speeds of pairs against Gavel's measured ones (`--data DIR`).

There are 26 types of jobs that fit on one GPU. The pairs of 18 types are known from measurements, and the pairs of the
other 8 among themselves are judged. Only values of a type alone are known of those: its family, batch size, speed, and
its gain from a V100 over the two other GPUs, which shows whether the GPU or the host limits it. Packing pays if the
relative speeds of both add up to more than 1. The gain of a rule is the sum of the excess over 1 of its pairs, as a
part of the gain of the oracle, which knows the table. Pairs of zeros do not fit and are left out. 95 % of the errors of
the combined speed should be within 1.96 of the predicted standard deviations. The row `all types known` shows the best
possible: each pair is judged with 9 in 10 of the others measured.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from ecoshare.advisers.interference_model import SHIPPED, InterferenceModel, PairMeasurement, SpeedEstimate, Traits
from ecoshare.simulation.traces.measured_speeds import read, speed_of
from scripts.bench.benchmarking import DataOptions, Figure, add_data, run_benchmark, say

TABLES = (("simulation", "v100"), ("simulation", "k80"), ("oracle", "k80"), ("oracle", "v100"), ("oracle", "p100"))
JUDGED = TABLES[:3]
"""Tables on which packing every pair gets less than 0.9 of the oracle's gain."""

KNOWN = 0.7
SPLITS, QUICK_SPLITS = 40, 8
FOLDS = 10
GPUS = ("v100", "p100", "k80")


class InterferenceOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        fit: Whether to print the hyperparameters that fit each table.
    """

    fit: bool


@dataclass(frozen=True)
class Table:
    """Measured pairs on a GPU.

    Attributes:
        speeds: Speed of both types of a pair over that alone, by their names in order.
        used: How much of the GPU a type may use, 0 to 1: a stand-in, see `_used`.
    """

    name: str
    traits: dict[str, Traits]
    speeds: dict[tuple[str, str], tuple[float, float]]
    used: dict[str, float]

    def seen(self, pairs: Sequence[tuple[str, str]]) -> list[PairMeasurement]:
        """Both sides of these pairs."""
        both = []
        for one, other in pairs:
            speed, others = self.speeds[one, other]
            both += [PairMeasurement(one, other, speed), PairMeasurement(other, one, others)][
                : 1 if one == other else 2
            ]
        return both


@dataclass
class Score:
    """Score of a rule, summed over splits."""

    gained: float = 0.0
    possible: float = 0.0
    right: list[float] = field(default_factory=list)
    squared: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)

    def add(self, packs: Sequence[bool], truth: Sequence[float]) -> None:
        """Add the decisions in a split, and the true combined speeds of the pairs."""
        self.gained += sum(total - 1.0 for total, pack in zip(truth, packs, strict=True) if pack)
        self.possible += sum(max(0.0, total - 1.0) for total in truth)
        self.right += [float(pack == (total > 1.0)) for total, pack in zip(truth, packs, strict=True)]

    def predicted(self, guesses: Sequence[SpeedEstimate], truth: Sequence[float]) -> None:
        """Add the combined speeds that the rule expected."""
        self.squared += [(guess.mean - total) ** 2 for guess, total in zip(guesses, truth, strict=True)]
        off = [abs(guess.mean - total) / guess.sd for guess, total in zip(guesses, truth, strict=True)]
        self.inside += [float(each < 1.96) for each in off]


def measure(options: InterferenceOptions) -> list[Figure]:
    """All tables; a note if no folder of them is given."""
    if options.data is None:
        return [Figure("tables", None, "", note="give their folder with --data")]
    tables = [table_of(options.data, *each) for each in TABLES]
    if options.fit:
        _say_fitted(tables)
    splits = QUICK_SPLITS if options.quick else SPLITS
    return [each for table, at in zip(tables, TABLES, strict=True) for each in _judged(table, at in JUDGED, splits)]


def _judged(table: Table, wanted: bool, splits: int) -> list[Figure]:
    names = sorted(table.traits)
    scores = {name: Score() for name in ("ours", "ours, one measured", "always", "utilisation sum", "oracle")}
    for seed in range(splits):
        draw = np.random.default_rng(seed)
        mixed = [names[place] for place in draw.permutation(len(names))]
        known = set(mixed[: round(KNOWN * len(names))])
        before = [pair for pair in table.speeds if known.issuperset(pair)]
        judged = [pair for pair in table.speeds if known.isdisjoint(pair)]
        truth = [sum(table.speeds[pair]) for pair in judged]
        more = _first_of_each(table, sorted(set(names) - known), known, draw)
        for name, pairs in (("ours", before), ("ours, one measured", before + more)):
            model = InterferenceModel(table.traits, table.seen(pairs))
            guesses = [model.combined(*pair) for pair in judged]
            scores[name].add([guess.mean > 1.0 for guess in guesses], truth)
            scores[name].predicted(guesses, truth)
        limit = _best_limit(table, before)
        scores["always"].add([True] * len(judged), truth)
        scores["utilisation sum"].add([table.used[one] + table.used[other] <= limit for one, other in judged], truth)
        scores["oracle"].add([total > 1.0 for total in truth], truth)
    scores["ours, all types known"] = _all_known(table)
    return _figures(table.name, scores, ">= 0.9" if wanted else "")


def _all_known(table: Table) -> Score:
    """Each pair, with the pairs of the nine other folds measured."""
    score, pairs = Score(), sorted(table.speeds)
    folds = np.random.default_rng(0).permutation(len(pairs)) % FOLDS
    for fold in range(FOLDS):
        judged = [pair for pair, of in zip(pairs, folds, strict=True) if of == fold]
        model = InterferenceModel(table.traits, table.seen([pair for pair in pairs if pair not in judged]))
        guesses, truth = [model.combined(*pair) for pair in judged], [sum(table.speeds[pair]) for pair in judged]
        score.add([guess.mean > 1.0 for guess in guesses], truth)
        score.predicted(guesses, truth)
    return score


def _figures(table: str, scores: dict[str, Score], wanted: str) -> list[Figure]:
    notes = {
        "ours": "first sight",
        "ours, one measured": "each beside one of the known types",
        "utilisation sum": "a stand-in: Gavel has no utilisations",
    }
    figures = []
    for name, score in scores.items():
        gain, right = score.gained / score.possible, fmean(score.right)
        say(f"{table}, {name}: gain {gain:.3f}, right {right:.3f}")
        figures.append(
            Figure(f"{table}: {name}, gain", gain, "", wanted if name == "ours" else "", notes.get(name, ""))
        )
        figures.append(Figure(f"{table}: {name}, right decisions", right, ""))
        if score.squared:
            error = math.sqrt(fmean(score.squared))
            figures.append(Figure(f"{table}: {name}, error of combined speed", error, "", note="root of mean square"))
            figures.append(Figure(f"{table}: {name}, within 1.96 sd", fmean(score.inside), ""))
    never = 1.0 - fmean(scores["always"].right)
    figures.append(Figure(f"{table}: never, right decisions", never, "", note="it gains nothing"))
    return figures


def _first_of_each(
    table: Table, unseen: Sequence[str], known: set[str], draw: np.random.Generator
) -> list[tuple[str, str]]:
    """One pair with a known type for each new type."""
    chosen = []
    for name in unseen:
        pairs = [pair for pair in table.speeds if name in pair and not known.isdisjoint(pair)]
        if pairs:
            chosen.append(pairs[int(draw.integers(len(pairs)))])
    return chosen


def _best_limit(table: Table, pairs: Sequence[tuple[str, str]]) -> float:
    """Limit of the sum of utilisations that would have gained the most on known pairs."""
    ordered = sorted((table.used[one] + table.used[other], sum(table.speeds[one, other]) - 1.0) for one, other in pairs)
    gains = np.cumsum([gain for _, gain in ordered])
    best = int(np.argmax(gains))
    return ordered[best][0] if gains[best] > 0.0 else -1.0


def table_of(data: Path, file: str, gpu: str) -> Table:
    """The pairs on `gpu` in one of Gavel's two files."""
    path = data / "gavel" / f"{file}_throughputs.json"
    alone = {model: _alone(read(path, model).table) for model in GPUS}
    rows = {_type(key): row for key, row in read(path, gpu).table.items()}
    names = [name for name, speed in alone[gpu].items() if speed]
    speeds = {}
    for one in names:
        for other, pair in ((_type(key), pair) for key, pair in rows[one].items() if key != "null"):
            if other not in names or one > other or not all(pair):
                continue
            # A pair is not faster than alone, but by errors of measuring.
            speeds[one, other] = min(1.0, pair[0] / alone[gpu][one]), min(1.0, pair[1] / alone[gpu][other])
    traits = {name: Traits(name.partition(" (")[0], _numbers(name, gpu, alone)) for name in names}
    return Table(f"{file} {gpu}", traits, speeds, _used(traits))


def _alone(rows: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
    """Iterations a second of types that need one GPU; 0 if a pair does not fit."""
    return {name: speed_of(row.get("null")) or 0.0 for key, row in rows.items() if (name := _type(key))}


def _type(key: str) -> str:
    """Name of a type, from `('A3C', 1)` or a bare name; empty for types of more than one GPU."""
    found = re.fullmatch(r"\('(.*)', (\d+)\)", key)
    if found is None:
        return key
    return found[1] if found[2] == "1" else ""


def _numbers(name: str, gpu: str, alone: dict[str, dict[str, float]]) -> dict[str, float]:
    numbers = {"log_iteration_s": -math.log(alone[gpu][name])}
    batch = re.search(r"batch size (\d+)", name)
    if batch:
        numbers["log_batch"] = math.log(float(batch[1]))
    for other in ("k80", "p100"):
        if alone["v100"].get(name) and alone[other].get(name):
            numbers[f"log_v100_over_{other}"] = math.log(alone["v100"][name] / alone[other][name])
    return numbers


def _used(traits: dict[str, Traits]) -> dict[str, float]:
    """Gain of a type from a V100 over a K80, scaled to 0 for the least and 1 for the most.

    Gavel's tables have no utilisations. A type that uses all of a GPU gains most from a faster one, and a type that
    waits for its host gains nothing. Types without this number are in the middle.
    """
    ratios = {name: each.numbers.get("log_v100_over_k80") for name, each in traits.items()}
    there = [ratio for ratio in ratios.values() if ratio is not None]
    low, high = min(there), max(there)
    return {name: 0.5 if ratio is None else (ratio - low) / (high - low) for name, ratio in ratios.items()}


def _say_fitted(tables: Sequence[Table]) -> None:
    """The hyperparameters of each table, and their mean: what `SHIPPED` is."""
    fitted = []
    for table in tables:
        values = InterferenceModel(table.traits, table.seen(list(table.speeds)), centre=_NEUTRAL).hyperparameters
        say(f"{table.name}: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items()))
        fitted.append(values)
    for name, shipped in SHIPPED.items():
        say(f'    "{name}": {fmean(each[name] for each in fitted):.1f},  now {shipped:g}')


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
    "scale_1": math.log(2.0),
    "scale_2": math.log(2.0),
}
"""Centre of the search for hyperparameters without `SHIPPED`."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--fit", action="store_true", help="also say which hyperparameters fit each table")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("interference", __doc__, measure, InterferenceOptions, _add_options)


if __name__ == "__main__":
    main()
