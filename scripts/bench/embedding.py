"""Benefit of LlamaTune's three ideas: searches over 12 knobs, of which 2 to 4 matter, within 30 measurements.

The problems are invented: logarithms of power and time are sums of each knob's own curve (a step somewhere, and a bump)
and of effects of pairs of the knobs that matter; a special value lies off its knob's curve. The tuner's prior has
another form. The best possible under the limit is found exactly: for the knobs that matter from every combination,
for the others from the frontier of their sums.

Every search begins with the default, measures with 2 % noise, and has as many settings to choose from as the others.
Relative objectives are those of the best feasible setting tried over the best possible; ratios those of one search to
plain constrained optimization on a random part of all settings, problem by problem and seed by seed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray

from scripts.bench.benchmarking import Figure, Options, median, run_benchmark, say
from tuner import ConstrainedTuner, Knob, Limit, Prior, Setting, Space, energy
from tuner.embedding import EmbeddedSpace, embedded

MOST, NOISE, BUDGET = 1.1, 0.02, 30
TIME, POWER = "time_s", "power_w"
SIZES = (2, 3, 4, 4, 6, 8, 10, 12, 16, 24, 32, 48)
SPECIALS = 4
AFTER = (10, 20, 30)
DIMENSIONS, LEVELS, POINTS = 6, 7, 2400
SPECIAL_SHARE = 0.2

Array = NDArray[np.float64]


class EmbeddingOptions(Options):
    """Options of this benchmark.

    Attributes:
        points: Most settings to choose from.
        first: Seed of the first problem.
        seeds: Searches on each problem.
    """

    points: int
    first: int
    seeds: int


@dataclass(frozen=True)
class Problem:
    """One invented workload.

    Attributes:
        matters: Indices of the knobs that matter.
        curves: Logarithms of power and time for each knob, (2, n_values), with special values last.
        together: Logarithms for pairs of knobs, (2, n_values, n_values).
    """

    knobs: tuple[Knob, ...]
    default: dict[str, float | str]
    matters: tuple[int, ...]
    curves: tuple[Array, ...]
    together: dict[tuple[int, int], Array]

    @classmethod
    def invent(cls, seed: int) -> Problem:
        """Problem of the family; seeds that differ by one differ in the number of knobs that matter."""
        draw = np.random.default_rng(seed)
        sizes = draw.permutation(SIZES)
        special = set(draw.choice(len(sizes), SPECIALS, replace=False).tolist())
        matters = tuple(sorted(draw.choice(len(sizes), 2 + seed % 3, replace=False).tolist()))
        knobs, curves, ranks = [], [], []
        for place, size in enumerate(sizes.tolist()):
            values = np.geomspace(1.0, 100.0, size) if draw.random() < 0.5 else np.linspace(1.0, 10.0, size)
            like = int(draw.choice([0, size - 1, size // 2]))
            names = {"auto": float(values[like])} if place in special else {}
            knobs.append(Knob(f"knob{place}", tuple(map(float, values)), special=names))
            rank = np.linspace(0.0, 1.0, size)
            low, high = (0.15, 0.4) if place in matters else (0.0, 0.02)
            curve = np.stack([draw.uniform(low, high) * _shape(rank, like, draw, bool(names)) for _ in range(2)])
            curves.append(curve)
            ranks.append(np.append(rank, rank[like]) if names else rank)
        together = {
            (one, other): 0.3
            * draw.choice([-1.0, 1.0], (2, 1, 1))
            * min(float(np.ptp(curves[one])), float(np.ptp(curves[other])))
            * np.outer(2.0 * ranks[one] - 1.0, 2.0 * ranks[other] - 1.0)
            for one, other in itertools.combinations(matters, 2)
        }
        default = {}
        for knob in knobs:
            usual = float(draw.choice(knob.values))
            default[knob.name] = "auto" if knob.special and draw.random() < 0.5 else usual
        return cls(tuple(knobs), default, matters, tuple(curves), together)

    def logs(self, setting: Setting) -> Array:  # (2,)
        """Logarithms of power and time, without noise."""
        at = [_choices(knob).index(setting[knob.name]) for knob in self.knobs]
        total: Array = sum((curve[:, place] for curve, place in zip(self.curves, at, strict=True)), np.zeros(2))
        for (one, other), table in self.together.items():
            total = total + table[:, at[one], at[other]]
        return total

    @cached_property
    def best(self) -> float:
        """Logarithm of the least energy that keeps the limit."""
        shape = tuple(self.curves[place].shape[1] for place in self.matters)
        total = np.zeros((2, *shape))
        for axis, place in enumerate(self.matters):
            total += self.curves[place].reshape(2, *(size if axis == at else 1 for at, size in enumerate(shape)))
        for (one, other), table in self.together.items():
            axes = self.matters.index(one), self.matters.index(other)
            total += table.reshape(2, *(size if at in axes else 1 for at, size in enumerate(shape)))
        power, slow = total.reshape(2, -1)
        rest = np.zeros((2, 1))
        for place, curve in enumerate(self.curves):
            if place not in self.matters:
                rest = _frontier((rest[:, :, None] + curve[:, None, :]).reshape(2, -1))
        # The frontier is sorted by time, and its energy falls as time grows: the last one that fits is the best.
        fits = np.searchsorted(rest[1], self.logs(self.default)[1] + math.log(MOST) - slow, side="right") - 1
        joules = power + slow + (rest[0] + rest[1])[np.maximum(fits, 0)]
        return float(joules[fits >= 0].min())


def _shape(rank: Array, like: int, draw: np.random.Generator, special: bool) -> Array:
    """Curve of a step and a bump, with a special value off it; of the size of 1."""
    step = 1.0 / (1.0 + np.exp(-(rank - draw.uniform(0.0, 1.0)) / draw.uniform(0.08, 0.4)))
    step = (step - step.min()) / np.ptp(step) * draw.choice([-1.0, 1.0])
    shape = step + 0.5 * draw.standard_normal() * np.exp(-(((rank - draw.uniform(0.0, 1.0)) / 0.2) ** 2))
    off = shape[like] + draw.choice([-1.0, 1.0]) * draw.uniform(0.5, 1.0)
    return np.append(shape, off) if special else shape


def _frontier(logs: Array) -> Array:
    """Points with no other of less energy and less time, by time; times that are nearly equal are one."""
    order = np.lexsort((logs.sum(axis=0), logs[1]))
    joules = logs.sum(axis=0)[order]
    lowest = np.minimum.accumulate(joules)
    better = np.append(True, joules[1:] < lowest[:-1] - 1e-6)
    kept: Array = logs[:, order[better]]
    return kept


def _choices(knob: Knob) -> tuple[float | str, ...]:
    return (*knob.values, *knob.special)


def subset(problem: Problem, seed: int, points: int) -> Space:
    """A random part of all settings, the default among them."""
    draw = np.random.default_rng(seed)
    settings = {tuple(problem.default.values()): problem.default}
    while len(settings) < points:
        values = [_choices(knob) for knob in problem.knobs]
        setting = {knob.name: each[draw.integers(len(each))] for knob, each in zip(problem.knobs, values, strict=True)}
        settings[tuple(setting.values())] = setting
    return Space(problem.knobs, settings.values())


def low(
    problem: Problem,
    seed: int,
    points: int,
    dimensions: int = DIMENSIONS,
    levels: int = LEVELS,
    special_share: float | None = SPECIAL_SHARE,
) -> EmbeddedSpace:
    """The problem's embedded space."""
    return embedded(problem.knobs, problem.default, dimensions, levels, special_share, seed, points)


def unscaled(space: EmbeddedSpace) -> Space:
    """Same settings for a model that does not know which knobs move together."""
    return Space(space.knobs, space.settings)


def search(problem: Problem, space: Space, seed: int, kind: str) -> list[float]:
    """Logarithm of the best feasible energy so far over the best possible, after each measurement."""
    draw = np.random.default_rng(1000 + seed)
    nothing = Prior.of_samples((POWER, TIME), torch.zeros(2, 2, len(space), dtype=torch.double), [5.0, 5.0])
    tuned = None
    if kind != "random":
        prior, plain = (nothing, True) if kind == "plain" else (None, False)
        tuned = ConstrainedTuner(space, energy({TIME: 1.0}), [Limit(TIME, MOST)], problem.default, prior, seed, plain)
    order = [space.index(problem.default), *draw.permutation(len(space)).tolist()]
    slowest = problem.logs(problem.default)[1] + math.log(MOST)
    regrets, so_far = [], math.inf
    for count in range(BUDGET):
        setting = tuned.ask() if tuned is not None else space.settings[order[count]]
        logs = problem.logs(setting)
        if logs[1] <= slowest + 1e-9:
            so_far = min(so_far, float(logs.sum()))
        regrets.append(so_far - problem.best)
        power, slow = np.exp(logs + NOISE * draw.standard_normal(2))
        if tuned is not None:
            tuned.tell(setting, {POWER: float(power), TIME: float(slow)})
    return regrets


Way = tuple[str, Callable[[Problem, int], Space]]


def ways(quick: bool, most: int) -> dict[str, Way]:
    """Ways by name: the kind (plain, ours or random), and the space that it searches."""

    def part(problem: Problem, seed: int) -> Space:
        return subset(problem, seed, len(low(problem, seed, most)))

    def small(
        problem: Problem,
        seed: int,
        dimensions: int = DIMENSIONS,
        levels: int = LEVELS,
        special_share: float | None = SPECIAL_SHARE,
    ) -> EmbeddedSpace:
        return low(problem, seed, most, dimensions, levels, special_share)

    short: dict[str, Way] = {
        "plain": ("plain", part),
        "random": ("random", part),
        "ours": ("ours", part),
        "plain, embedded": ("plain", small),
        "plain, embedded, no special share": ("plain", partial(small, special_share=None)),
        "plain, embedded, not bucketised": ("plain", partial(small, levels=max(SIZES) + 1)),
        "plain, embedded, not projected": ("plain", partial(small, dimensions=len(SIZES))),
    }
    more: dict[str, Way] = {
        "ours, embedded": ("ours", small),
        "ours, embedded, not projected": ("ours", partial(small, dimensions=len(SIZES))),
        "random, embedded": ("random", small),
        "plain, embedded in 2": ("plain", partial(small, dimensions=2)),
        "plain, embedded in 4": ("plain", partial(small, dimensions=4)),
        "plain, embedded, knobs not scaled": ("plain", lambda problem, seed: unscaled(small(problem, seed))),
    }
    return short if quick else {**short, **more}


def measure(options: EmbeddingOptions) -> list[Figure]:
    """Figures of every way on every problem."""
    problems = [Problem.invent(options.first + seed) for seed in range(3 if options.quick else 12)]
    seeds = range(1 if options.quick else options.seeds)
    points = options.points // (2 if options.quick else 1)
    default = [float(each.logs(each.default).sum()) - each.best for each in problems]
    figures = [Figure("default", math.exp(median(default)), "x")]
    found: dict[str, list[list[float]]] = {}
    for name, (kind, place) in ways(options.quick, points).items():
        began_s = time.monotonic()
        found[name] = [search(each, place(each, seed), seed, kind) for each in problems for seed in seeds]
        took_s = (time.monotonic() - began_s) / len(found[name])
        relative, ratios = [], []
        for after in AFTER:
            logs = [regrets[after - 1] for regrets in found[name]]
            plain = [regrets[after - 1] for regrets in found["plain"]]
            relative.append(math.exp(median(logs)))
            ratios.append(math.exp(median([one - other for one, other in zip(logs, plain, strict=True)])))
            figures.append(Figure(f"{name}, after {after}", relative[-1], "x"))
            # Three searches cannot tell.
            wanted = "<= 1" if name == "plain, embedded" and not options.quick else ""
            figures.append(Figure(f"{name}, after {after}, over plain", ratios[-1], "", wanted))
        told = " ".join(f"{each:.3f}" for each in (*relative, *ratios))
        say(f"{name}: {told}, {took_s:.1f} s each")
    return figures


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=POINTS, help="settings to choose from, at most")
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--seeds", type=int, default=3, help="searches on each problem")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("embedding", __doc__, measure, EmbeddingOptions, _add_options)


if __name__ == "__main__":
    main()
