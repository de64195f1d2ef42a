"""Embedded spaces for many knobs: a few dimensions, each of which moves several knobs.

A list of all settings of many knobs would be too long. The embedding uses the three ideas of LlamaTune (Kanellis et
al., "LlamaTune: Sample-Efficient DBMS Configuration Tuning", VLDB 2022)::

    point of the box        rungs of each knob                     a setting
    (d whole numbers)       (tied to one dimension, one sign)      (D values)

        z_1  ──┬─ + ──────► 600 600 900 1200 1500 unlocked ────►   clock: 900
               └─ - ──────► 8   4   2   1    auto auto     ────►   workers: 2
        z_2  ──── + ──────► ...

1. Projection (HeSBO: Nayebi, Munteanu, Poloczek, "A Framework for Bayesian Optimization in Embedded Subspaces", ICML
   2019): every knob is tied to one dimension, with a random sign. HeSBO draws the dimension of each knob independently.
   Here the dimensions share the knobs evenly, so that none is empty and the fewest knobs are tied together.
2. Special values get a share of the rungs, because their effect cannot be predicted from the values around them.
3. A knob with many values is cut to a few values. A ladder of few rungs does that by itself.

Notation: D knobs, d dimensions, n settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tuner.space import Knob, Setting, Space, Value


def embedded(
    knobs: Sequence[Knob],
    default: Setting,
    dimensions: int = 6,
    levels: int = 7,
    special_share: float | None = 0.2,
    seed: int = 0,
    most: int = 2400,
) -> EmbeddedSpace:
    """Space of the default, which comes first, and of the settings that a low-dimensional grid reaches.

    Equal arguments give equal spaces.

    Args:
        knobs: The knobs.
        default: Default setting.
        dimensions: Number of dimensions of the grid. Choose more than the number of knobs that may matter, because tied
            knobs cannot be set separately. With as many dimensions as knobs, or more, no knobs are tied.
        levels: Number of levels of each dimension.
        special_share: Share of a knob's levels that its special values get together, each at least one. None gives them
            no more than their share of the values, which may be no level at all.
        seed: Seed of the projection and of the points.
        most: Most points of the grid. A larger grid is replaced by random points, in which all levels are equally
            frequent.

    Raises:
        ValueError: The default is no setting of the knobs, or there are too few levels, dimensions or points.
    """
    if dimensions < 1 or levels < 2 or most < levels:
        raise ValueError("an embedding has a dimension or more, of two levels or more, and no fewer points than levels")
    if default.keys() != {knob.name for knob in knobs}:
        raise ValueError(f"the default has one value for each of {', '.join(sorted(knob.name for knob in knobs))}")
    draw = np.random.default_rng(seed)
    count = min(dimensions, len(knobs))
    dimension = draw.permutation(np.arange(len(knobs)) % count)
    sign = draw.choice([-1, 1], len(knobs))
    ladders = tuple(_ladder(knob, levels, special_share, default[knob.name]) for knob in knobs)
    projection = Projection(tuple(knobs), tuple(map(int, dimension)), tuple(map(int, sign)), ladders)
    points: Iterable[Sequence[int]] = itertools.product(range(levels), repeat=count)
    if levels**count > most:
        columns = [draw.permutation(np.arange(most) % levels) for _ in range(count)]
        points = np.stack(columns, axis=1).tolist()
    settings = [default, *(projection.setting(point) for point in points)]
    distinct = {tuple(setting[knob.name] for knob in knobs): setting for setting in settings}
    return EmbeddedSpace(projection, distinct.values())


def bucketised(knob: Knob, most: int, keep: Value | None = None) -> Knob:
    """Knob with at most `most` of its numbers: both ends, and numbers at even distances in the sorted list.

    Special values stay, and do not count.

    Args:
        knob: The knob.
        most: Most numbers to keep.
        keep: Value that must stay, such as the default.

    Raises:
        ValueError: The limit is too low for both ends and the value to keep, or the knob does not take that value.
    """
    kept = None if keep is None or isinstance(keep, str) else knob.number(keep)
    ordered = sorted(set(knob.values))
    if len(ordered) <= most:
        return knob
    ends = {ordered[0], ordered[-1]}
    if most < len(ends | ({kept} - {None})):
        raise ValueError(f"{most} values are too few for both ends of {knob.name} and its default")
    picked = [ordered[round(rank)] for rank in np.linspace(0, len(ordered) - 1, most)]
    if kept is not None and kept not in picked:
        inner = min(range(1, most - 1), key=lambda place: abs(ordered.index(picked[place]) - ordered.index(kept)))
        picked[inner] = kept
    return replace(knob, values=tuple(picked))


@dataclass(frozen=True)
class Projection:
    """Projection from points of the low-dimensional grid to settings.

    Attributes:
        knobs: The D knobs.
        dimension: Dimension that each knob is tied to, (D,).
        sign: Sign of each knob, (D,): 1 if the knob rises with its dimension, -1 if it falls.
        ladders: Values of each knob in the order of their numbers, (D, levels).
    """

    knobs: tuple[Knob, ...]
    dimension: tuple[int, ...]
    sign: tuple[int, ...]
    ladders: tuple[tuple[Value, ...], ...]

    def setting(self, point: Sequence[int]) -> dict[str, Value]:
        """Setting of a point.

        Args:
            point: Level of each dimension, from 0.
        """
        found = {}
        for knob, dimension, sign, ladder in zip(self.knobs, self.dimension, self.sign, self.ladders, strict=True):
            level = point[dimension]
            found[knob.name] = ladder[level if sign > 0 else len(ladder) - 1 - level]
        return found


class EmbeddedSpace(Space):
    """Space that knows which of its knobs move together.

    Attributes:
        projection: Source of all settings but the default.
    """

    def __init__(self, projection: Projection, settings: Iterable[Setting]) -> None:
        super().__init__(projection.knobs, settings)
        self.projection = projection

    @cached_property
    def features(self) -> NDArray[np.float64]:  # (n, n_features)
        """Features of all knobs, scaled so that a dimension with several knobs is as long as one knob.

        Tied knobs move together. Without scaling, k tied knobs would make a dimension sqrt(k) long, and the model would
        expect a function that changes sqrt(k) times as fast. Coordinates on the grid would have the right length, too.
        But the default lies off the grid, and a special value lies beside its neighbour on the ladder: only the knobs
        give their distances.
        """
        weights = []
        for knob, dimension in zip(self.knobs, self.projection.dimension, strict=True):
            tied = self.projection.dimension.count(dimension)
            weights += [tied**-0.5] + [1.0] * len(knob.special)
        scaled: NDArray[np.float64] = super().features * np.array(weights)
        return scaled


def _ladder(knob: Knob, levels: int, special_share: float | None, default: Value) -> tuple[Value, ...]:  # (levels,)
    """Values of a knob in the order of their numbers, some of them on several rungs."""
    knob.number(default)
    specials = sorted(knob.special, key=lambda name: (knob.special[name], name))
    numbers = sorted(set(knob.values))
    if special_share is None:
        return _spread(_ordered(knob, [*numbers, *specials]), levels)
    fewest = len(specials) + min(2, len(numbers))
    if levels < fewest:
        raise ValueError(f"{levels} levels are too few for {knob.name}: its ends and special values need {fewest}")
    if not specials:
        rungs = 0
    elif not numbers:
        rungs = levels
    else:
        rungs = min(max(round(special_share * levels), len(specials)), levels - min(2, len(numbers)))
    left = levels - rungs
    cut = bucketised(knob, left, default if left > 2 else None).values if left else ()
    return _ordered(knob, [*_spread(sorted(set(cut)), left), *_spread(specials, rungs)])


def _spread(values: Sequence[Value], rungs: int) -> tuple[Value, ...]:
    """Values in their order on `rungs` rungs, each on about equally many; evenly chosen ones if there are too many."""
    if len(values) > rungs > 1:
        return tuple(values[round(rank)] for rank in np.linspace(0, len(values) - 1, rungs))
    return tuple(values[rung * len(values) // rungs] for rung in range(rungs))


def _ordered(knob: Knob, values: Iterable[Value]) -> tuple[Value, ...]:
    """Values in the order of their numbers.

    A special value comes after the number that it is like. If it is like the lowest number, it comes before it, so that
    a special value at an end does not come between two numbers.
    """
    lowest = min(knob.values, default=0.0)

    def place(value: Value) -> tuple[float, int, str]:
        number = knob.number(value)
        if isinstance(value, str):
            return number, -1 if number == lowest else 1, value
        return number, 0, ""

    return tuple(sorted(values, key=place))
