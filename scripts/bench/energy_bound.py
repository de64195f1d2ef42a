"""Least energy of some work: a bound for any scheduler, even with full knowledge.

The bound is a fluid linear program. Columns are the packings that fit, at each possible setting, with a total time::

    min sum_c t_c watts_c    so that    sum_c t_c speed_(class, c) >= work_class,    t >= 0

The program has freedoms of no real schedule, and each makes the bound lower, hence safe. Jobs are there from the start
and have no slowdown limits. Any part of a class's work can be beside any other's, as long as no packing has more jobs
of a class than there are. Changes are free, and an idle device costs nothing. Drift is left out: its mean is zero, so a
schedule that happens to work while a device is cool may need up to 4 % less than counted here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csc_array

from ecoshare.base.measurement import Setting
from scripts.bench.energy_world import MeasuredWorld, States

Array = NDArray[np.float64]

_USED_S = 1e-6


@dataclass(frozen=True, slots=True)
class Column:
    """A packing at a setting.

    Attributes:
        seconds: Seconds for which it runs.
        speeds: Speed of each job, as in `State`.
    """

    jobs: tuple[str, ...]
    setting: Setting
    seconds: float
    speeds: tuple[float, ...]
    watts: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Least energy, and its schedule.

    Attributes:
        seconds: Working time (s) of all devices together.
        least_s: `seconds` over the number of devices.
        columns: Columns that run, the longest first.
        prices: Energy (J) of one more second of work alone at the default setting, by class.
    """

    joules: float
    seconds: float
    least_s: float
    columns: tuple[Column, ...]
    prices: Mapping[str, float]


def bound(
    world: MeasuredWorld,
    jobs: Sequence[tuple[str, float]],
    most_at_once: int = 3,
    devices: int = 1,
    settings: Collection[Setting] | None = None,
    tuning_limit: float = math.inf,
) -> Bound:
    """Least energy for all work.

    Args:
        jobs: Class of each job, and its work in seconds alone at the default setting.
        most_at_once: Largest number of jobs in a packing.
        settings: Settings that may be used; None for all of the space.
        tuning_limit: Limit on the time of an iteration in a packing, relative to the default setting.

    Raises:
        ValueError: A setting is not in the space, or there is none.
    """
    work_s = _work(jobs)
    places = _places(world, settings)
    classes = sorted(work_s)
    count = Counter(job_class for job_class, _ in jobs)
    alone_j = {}
    for each in classes:
        states = world.states((each,))
        kept = _kept(world, states, places, tuning_limit)
        alone_j[each] = float((states.watts / states.speeds[0])[kept].min())
    found: list[tuple[tuple[str, ...], int]] = []
    for size in range(1, most_at_once + 1):
        for packing in combinations_with_replacement(classes, size):
            if all(packing.count(each) <= count[each] for each in packing) and world.fits(packing):
                states = world.states(packing)
                kept = _kept(world, states, places, tuning_limit)
                found += [(packing, place) for place in _useful(states, packing, kept, alone_j)]
    if not found:
        return Bound(0.0, 0.0, 0.0, (), {})
    times_s, prices = _solve(world, found, classes, work_s)
    columns = [
        Column(packing, world.setting(place), float(time_s), *_at(world.states(packing), place))
        for (packing, place), time_s in zip(found, times_s, strict=True)
        if time_s > _USED_S
    ]
    return _of(columns, dict(zip(classes, prices, strict=True)), devices)


def exclusive(world: MeasuredWorld, jobs: Sequence[tuple[str, float]], setting: Setting = ()) -> Bound:
    """Energy (J) and time (s) of the same work, one job after the other, all at one setting."""
    (place,) = _places(world, [setting])
    columns, prices = [], {}
    for job_class, work_s in _work(jobs).items():
        speeds, watts = _at(world.states((job_class,)), place)
        columns.append(Column((job_class,), world.setting(place), work_s / speeds[0], speeds, watts))
        prices[job_class] = watts / speeds[0]
    return _of(columns, prices, 1)


def _of(columns: Sequence[Column], prices: Mapping[str, float], devices: int) -> Bound:
    longest_first = tuple(sorted(columns, key=lambda column: -column.seconds))
    seconds = sum(each.seconds for each in columns)
    return Bound(sum(each.seconds * each.watts for each in columns), seconds, seconds / devices, longest_first, prices)


def _work(jobs: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Seconds of work by class, without classes that have none."""
    work_s: dict[str, float] = {}
    for job_class, seconds in jobs:
        if seconds > 0.0:
            work_s[job_class] = work_s.get(job_class, 0.0) + seconds
    return work_s


def _places(world: MeasuredWorld, settings: Collection[Setting] | None) -> list[int]:
    if settings is None:
        return list(range(len(world.space)))
    try:
        places = sorted({world.space.index({**world.default, **dict(setting)}) for setting in settings})
    except KeyError as error:
        raise ValueError(f"there is no setting {error}") from error
    if not places:
        raise ValueError("a bound needs a setting")
    return places


def _kept(world: MeasuredWorld, states: States, places: Sequence[int], tuning_limit: float) -> list[int]:
    """Given settings at which every job keeps the limit; the default is one if it is given."""
    default = states.speeds[:, world.space.index(world.default)]
    return [place for place in places if (states.speeds[:, place] * tuning_limit >= default * (1.0 - 1e-9)).all()]


def _at(states: States, place: int) -> tuple[tuple[float, ...], float]:
    return tuple(float(each) for each in states.speeds[:, place]), float(states.watts[place])


def _useful(states: States, packing: tuple[str, ...], places: Sequence[int], alone_j: Mapping[str, float]) -> list[int]:
    """Settings of a packing that an optimum may need.

    No price of work exceeds what it costs alone, so a column with work that would cost less alone is in no optimum. A
    setting is not needed either if another one of the packing is as fast for every job and draws no more.
    """
    worth_w = sum(alone_j[each] * states.speeds[row] for row, each in enumerate(packing))
    left = [place for place in places if worth_w[place] >= states.watts[place] * (1.0 - 1e-9)]
    left.sort(key=lambda place: states.watts[place])
    kept: list[int] = []
    for place in left:
        if not kept or not (states.speeds[:, kept] >= states.speeds[:, [place]]).all(axis=0).any():
            kept.append(place)
    return kept


def _solve(
    world: MeasuredWorld,
    found: Sequence[tuple[tuple[str, ...], int]],
    classes: Sequence[str],
    work_s: Mapping[str, float],
) -> tuple[Array, list[float]]:
    """(n_columns,) seconds, and the price of each class."""
    row_of = {each: row for row, each in enumerate(classes)}
    speeds, rows, columns, watts = [], [], [], []
    for column, (packing, place) in enumerate(found):
        states = world.states(packing)
        watts.append(states.watts[place])
        for row, each in enumerate(packing):
            speeds.append(-states.speeds[row, place])
            rows.append(row_of[each])
            columns.append(column)
    matrix = csc_array((speeds, (rows, columns)), shape=(len(classes), len(found)))
    needed = np.array([work_s[each] for each in classes])
    scale = float(needed.sum())
    solved = linprog(watts, A_ub=matrix, b_ub=-needed / scale, bounds=(0.0, None), method="highs")
    if not solved.success:
        raise RuntimeError(f"the linear program was not solved: {solved.message}")
    return solved.x * scale, [-float(price) for price in solved.ineqlin.marginals]
