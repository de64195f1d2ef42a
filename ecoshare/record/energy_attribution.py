"""Energy attribution: splits the joules of a device in an interval among the jobs that shared it.

A device has one counter, so the split is an estimate. The inputs are the device's joules and, for each job, `a_i`: the
active joules that its work in the interval would have taken alone (iterations done x the class's active joules an
iteration).

::

    measured ┌──────────────┐
             │ interaction  │  cost of contention (memory), or saving (power limit): can be < 0
             ├──────────────┤
             │ a_2          │
             ├──────────────┤  a_i: each job's work as if alone
             │ a_1          │
             ├──────────────┤
             │ idle         │  belongs to no job
             └──────────────┘

The fair division of a joint cost is the Shapley value: each job's marginal cost averaged over all orders of arrival. It
needs the cost of every subset of jobs, but only the costs of single jobs and of all jobs are known. The interaction is
therefore assigned to pairs of jobs that run at the same time, in proportion to the product of their loads. The value
then has a closed form: `s_i = a_i + r * sum_j a_i a_j / (2 sum_{i<j} a_i a_j)`, where r = measured - idle - sum(a) and
j runs over the jobs of *other* lanes (jobs of one lane never run at the same moment). For two jobs in two lanes this is
their exact Shapley value over {idle, A, B, AB}. If no two lanes were busy, there is no interaction: r is an error of
the profiles, and is spread in proportion to a_i.

Source: Shapley, "A value for n-person games", 1953. In a game with pairwise interactions, the value of a player is its
own worth plus half the worth of each of its pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a job on a device in an interval.

    Attributes:
        job: Name of the job.
        lane: Lane in which the job ran.
        alone_j: Active joules that the same work takes alone; 0 if the job did no work.
    """

    job: str
    lane: int
    alone_j: float


def idle_part_j(measured_j: float, idle_w: float, wall_s: float) -> float:
    """Joules that the device would have spent without any work, at most `measured_j`."""
    return min(measured_j, idle_w * wall_s)


def split(active_j: float, works: Sequence[Work]) -> list[float]:
    """Joules of each work; their sum is `active_j`, up to rounding, or 0 if no job did any work.

    Args:
        active_j: Joules of the device beyond idle, at least 0.
        works: Work of the jobs. Equal works get equal joules, work of 0 gets 0, and no share is negative.
    """
    loads = [work.alone_j for work in works]
    whole = sum(loads)
    if whole <= 0.0:
        return [0.0] * len(loads)
    in_lane: dict[int, float] = {}
    for work in works:
        in_lane[work.lane] = in_lane.get(work.lane, 0.0) + work.alone_j
    # Load of each job times the load of all other lanes; the sum over jobs counts each pair's product twice.
    pairs = [work.alone_j * (whole - in_lane[work.lane]) for work in works]
    together = sum(pairs)
    interaction_j = active_j - whole
    # Two loads so unequal that their product vanishes do not interact; they are treated like one load alone.
    weights, weight = (pairs, together) if together > 1e-12 * whole**2 else (loads, whole)
    shares = [max(0.0, load + interaction_j * each / weight) for load, each in zip(loads, weights, strict=True)]
    kept = sum(shares)
    if kept <= 0.0:
        shares, kept = loads, whole
    return [share * (active_j / kept) for share in shares]
