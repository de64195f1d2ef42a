"""Whose joules were they: splits what a device spent over an interval among the jobs that shared it.

A device has one counter, so this is an estimate. Known are the device's joules and, for each job, the active joules
that its work of the interval would have taken alone, `a_i` (iterations done x the class's active joules an iteration).

::

    measured ┌──────────────┐
             │ interaction  │  what the jobs cost each other (memory contention), or save (power limit): can be < 0
             ├──────────────┤
             │ a_2          │
             ├──────────────┤  a_i: each job's work as if alone
             │ a_1          │
             ├──────────────┤
             │ idle         │  nobody's
             └──────────────┘

The fair division of a joint cost is the Shapley value: each job's marginal cost averaged over all orders of arrival. It
needs the cost of every subset of jobs, of which only the single ones and the whole are known. With the interaction laid
on pairs of jobs that run at the same time, in proportion to the product of their loads, it has a closed form:
`s_i = a_i + r * sum_j a_i a_j / (2 sum_{i<j} a_i a_j)`, where r = measured - idle - sum(a) and j runs over the jobs of
*other* lanes (jobs of one lane never run at the same moment). For two jobs in two lanes that is their exact Shapley
value over {idle, A, B, AB}. Where no two lanes were busy there is no interaction, and r is an error of the profiles,
which is spread in proportion to a_i.

Source: Shapley, "A value for n-person games", 1953; the value of a game with pairwise interactions is each player's own
worth and half of each of its pairs'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What a job did on a device in an interval.

    Attributes:
        job: Whose it is.
        lane: Where it ran.
        alone_j: Active joules that the same work takes alone; 0 where it did nothing.
    """

    job: str
    lane: int
    alone_j: float


def idle_part_j(measured_j: float, idle_w: float, wall_s: float) -> float:
    """The part of a device's joules that it would have spent without any work."""
    return min(measured_j, idle_w * wall_s)


def split(active_j: float, works: Sequence[Work]) -> list[float]:
    """Each job's joules; they add up to `active_j`, to rounding, where any job did anything, and to 0 else.

    Args:
        active_j: What the device spent beyond idle, at least 0.
        works: One for each job. Equal works get equal joules, work of 0 gets 0, and none is below 0.
    """
    loads = [work.alone_j for work in works]
    whole = sum(loads)
    if whole <= 0.0:
        return [0.0] * len(loads)
    in_lane: dict[int, float] = {}
    for work in works:
        in_lane[work.lane] = in_lane.get(work.lane, 0.0) + work.alone_j
    # Each job's load times that of all other lanes: twice the sum of its pairs' products.
    pairs = [work.alone_j * (whole - in_lane[work.lane]) for work in works]
    together = sum(pairs)
    interaction_j = active_j - whole
    # Two loads so unequal that their product vanishes interact no more than one load alone.
    weights, weight = (pairs, together) if together > 1e-12 * whole**2 else (loads, whole)
    shares = [max(0.0, load + interaction_j * each / weight) for load, each in zip(loads, weights, strict=True)]
    kept = sum(shares)
    if kept <= 0.0:
        shares, kept = loads, whole
    return [share * (active_j / kept) for share in shares]
