"""Interference adviser: how fast job classes run beside each other, and what their work is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import ColocationMeasurement, PairSpeed
from ecoshare.core.commands import AskInterference
from ecoshare.core.placement.colocation_estimates import GPU_GUESS, ColocationEstimates, FirstGuess
from ecoshare.knowledge.advisers.interference_model import SHIPPED, SLOWEST, InterferenceModel, PairMeasurement, Traits

MOST_GROUPS = 500
"""Most groups that are looked at: pairs of 30 classes, groups of three of 12, of five of 6."""


def prices(
    outlook: ColocationEstimates, work_s: Mapping[str, float], largest: int, jobs: Mapping[str, int] | None = None
) -> dict[str, float]:
    """Price (J) of a second of each class's work alone; empty if no power is known or the program has no solution.

    The prices come from a fluid linear program. It spreads time t over groups c of co-located classes so that all work
    is done with as little energy as possible::

        min  sum_c t_c P_c     so that     sum_c t_c r_ic >= work_i  for each class i,     t >= 0

    P_c is the power of a device with group c, and r_ic the rate of class i in it. The dual variable of a class is its
    price: the cost of one more second of its work. Work of a class that runs well beside many classes is cheap. A mate
    that only one class can use well is worth keeping for that class.

    A price is at most the energy that the second costs alone. A group has at most as many jobs of a class as there are.

    Args:
        outlook: Estimates for co-located jobs.
        work_s: Work (s alone) of each class. The price of a class without work is its energy alone.
        largest: Most jobs in a group.
        jobs: Number of jobs of each class; a class without one may have any.
    """
    if all(solo.power_w is None for solo in outlook.solos.values()):
        return {}
    alone = {name: outlook.forecast((name,)).power_w for name in sorted(work_s)}
    busy = [name for name in alone if work_s[name] > 0.0]
    if not busy:
        return alone
    return alone | _duals(outlook, busy, np.array([work_s[name] for name in busy]), largest, alone, jobs or {})


def _duals(
    outlook: ColocationEstimates,
    classes: list[str],
    work_s: NDArray[np.float64],
    largest: int,
    alone: Mapping[str, float],
    jobs: Mapping[str, int],
) -> dict[str, float]:
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    places = {name: place for place, name in enumerate(classes)}
    power_w, rates, rows, columns = list[float](), list[float](), list[int](), list[int]()
    for size in _sizes(len(classes), largest):
        for members in combinations_with_replacement(classes, size):
            if any(members.count(name) > jobs.get(name, size) for name in members):
                continue
            forecast = outlook.forecast(members)
            rows += [places[name] for name in members]
            columns += [len(power_w)] * size
            rates += forecast.speeds
            power_w.append(forecast.power_w)
    # Jobs of one class are several entries at one position: they add up.
    rate = csc_array((rates, (rows, columns)), shape=(len(classes), len(power_w)))
    # Scaled by all work and the largest power, so that the solver's tolerances mean the same for any mix.
    watts = max(power_w)
    solved = linprog(np.array(power_w) / (watts or 1.0), A_ub=-rate, b_ub=-work_s / work_s.sum(), method="highs")
    if not solved.success:
        return {}
    worth = np.maximum(0.0, -solved.ineqlin.marginals) * (watts or 1.0)
    return {name: min(alone[name], float(each)) for name, each in zip(classes, worth, strict=True)}


def _sizes(classes: int, largest: int) -> range:
    """Sizes of the groups that are looked at: alone and pairs in any case, larger ones within `MOST_GROUPS`.

    With n classes there are C(n + k, k) - 1 groups of at most k members.
    """
    size = max(1, min(largest, 2))
    while size < largest and comb(classes + size + 1, size + 1) - 1 <= MOST_GROUPS:
        size += 1
    return range(1, size + 1)


LEAST_DELAY = 0.01
"""Least delay that any neighbour is expected to cause, so that one of them causes the delay that was measured."""


def foresee(
    ask: AskInterference,
    guess: FirstGuess = GPU_GUESS,
    centre: Mapping[str, float] = SHIPPED,
) -> tuple[tuple[PairSpeed, ...], dict[str, float]]:
    """Speeds of all ordered pairs of classes with work, each beside itself too, and the prices of their work.

    One thread is used. The matrices are small, and several threads would wait for each other: 10 times as long on cores
    that jobs keep busy.

    Args:
        ask: Question of the core.
        guess: Expected speeds of pairs before any measurement.
        centre: Hyperparameters of the model before it has seen enough pairs for a fit.

    Returns:
        Speed of each ordered pair to four digits, so that the log stays small, and the price (J per second of work
        alone) of each class.
    """
    with threadpool_limits(1, "blas"):
        return _foresee(ask, guess, centre)


def _foresee(
    ask: AskInterference, guess: FirstGuess, centre: Mapping[str, float]
) -> tuple[tuple[PairSpeed, ...], dict[str, float]]:
    solos = dict(ask.solos)
    names = sorted({name for name, _ in ask.work_s})
    traits = _traits(solos)
    known = partial(InterferenceModel, traits, guess=guess, centre=centre)
    model = known(_pair_measurements(ask.colocations, lambda seen: known(seen, fit=False)))
    pairs = []
    for one in names:
        for other in names:
            speed, _ = model.speeds(one, other)
            pairs.append(PairSpeed(one, other, float(f"{speed.mean:.4g}"), float(f"{speed.sd:.4g}")))
    outlook = ColocationEstimates(guess)
    for name, solo in solos.items():
        outlook.learn(name, solo)
    outlook.foreseen(pairs, {}, ask.colocations)
    return tuple(pairs), prices(outlook, dict(ask.work_s), ask.largest, dict(ask.jobs))


def _traits(solos: Mapping[str, Solo]) -> dict[str, Traits]:
    active_w = {name: active for name, solo in solos.items() if (active := _active_w(solo)) is not None}
    most_w = max(active_w.values(), default=0.0)
    traits = {}
    for name, solo in solos.items():
        numbers = {"busy": solo.busy, "memory_busy": solo.memory_busy}
        if solo.iteration_s is not None and solo.iteration_s > 0.0:
            numbers["log_iteration_s"] = math.log(solo.iteration_s)
        if most_w > 0.0 and name in active_w:
            numbers["active_share"] = active_w[name] / most_w
        known = {number: value for number, value in numbers.items() if value is not None}
        traits[name] = Traits(solo.family, known)
    return traits


def _active_w(solo: Solo) -> float | None:
    return None if solo.power_w is None or solo.idle_w is None else max(0.0, solo.power_w - solo.idle_w)


def _pair_measurements(
    seen: Sequence[ColocationMeasurement], model_of: Callable[[Sequence[PairMeasurement]], InterferenceModel]
) -> list[PairMeasurement]:
    """Pair measurements from measured packings.

    Pairs say all about themselves. In a larger packing each neighbour causes a part of the delay, in proportion to what
    the pairs lead to expect of it.

    Args:
        seen: The measured packings.
        model_of: Returns a model that has seen these pairs.
    """
    pairs = [side for each in seen if len(each.classes) == 2 for side in _sides(each, lambda _one, _other: 1.0)]
    if larger := [each for each in seen if len(each.classes) > 2]:
        model = model_of(pairs)
        for number, each in enumerate(larger, start=1):
            pairs += _sides(each, partial(_expected_delay, model), number)
    return pairs


def _sides(
    seen: ColocationMeasurement, part: Callable[[str, str], float], packing: int = 0
) -> Iterator[PairMeasurement]:
    """Sides of the pairs of a measured packing.

    Args:
        seen: The measured packing.
        part: Returns the part of the delay of a class that a neighbour causes, relative to other neighbours.
        packing: Number of a packing of three or more; 0 for a pair.
    """
    for place, (one, speed) in enumerate(zip(seen.classes, seen.speeds, strict=True)):
        others = (*seen.classes[:place], *seen.classes[place + 1 :])
        if others and speed > 0.0:
            delay, parts = max(0.0, 1.0 / speed - 1.0), [part(one, other) for other in others]
            for other, own in zip(others, parts, strict=True):
                yield PairMeasurement(one, other, 1.0 / (1.0 + delay * own / sum(parts)), packing)


def _expected_delay(model: InterferenceModel, one: str, other: str) -> float:
    speed, _ = model.speeds(one, other)
    return max(LEAST_DELAY, 1.0 / max(SLOWEST, speed.mean) - 1.0)
