"""Work prices: the worth (J) of a second of each class's work, if all work is done with the least energy.

The prices come from a fluid linear program. It spreads time t over groups c of co-located classes so that all work is
done with as little energy as possible::

    min  sum_c t_c P_c     so that     sum_c t_c r_ic >= work_i  for each class i,     t >= 0

P_c is the power of a device with group c, and r_ic the rate of class i in it. The dual variable of a class is its
price: the cost of one more second of its work. Work of a class that runs well beside many classes is cheap. A mate that
only one class can use well is worth keeping for that class.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from ecoshare.core.placement.colocation_estimates import ColocationEstimates

MOST_GROUPS = 500
"""Most groups that are looked at: pairs of 30 classes, groups of three of 12, of five of 6."""


def prices(outlook: ColocationEstimates, work_s: Mapping[str, float], largest: int) -> dict[str, float]:
    """Price (J) of a second of each class's work alone; empty if no power is known or the program has no solution.

    A price is at most the energy that the second costs alone. A class may be beside itself, because the number of its
    jobs is unknown here.

    Args:
        outlook: Estimates for co-located jobs.
        work_s: Work (s alone) of each class. The price of a class without work is its energy alone.
        largest: Most jobs in a group.
    """
    if all(solo.power_w is None for solo in outlook.solos.values()):
        return {}
    alone = {name: outlook.forecast((name,)).power_w for name in sorted(work_s)}
    busy = [name for name in alone if work_s[name] > 0.0]
    if not busy:
        return alone
    return alone | _duals(outlook, busy, np.array([work_s[name] for name in busy]), largest, alone)


def _duals(
    outlook: ColocationEstimates,
    classes: list[str],
    work_s: NDArray[np.float64],
    largest: int,
    alone: Mapping[str, float],
) -> dict[str, float]:
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    places = {name: place for place, name in enumerate(classes)}
    power_w, rates, rows, columns = list[float](), list[float](), list[int](), list[int]()
    for size in _sizes(len(classes), largest):
        for members in combinations_with_replacement(classes, size):
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
