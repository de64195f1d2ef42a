"""Merges the intervals of an account until each is long enough for a mean of its watts.

Sometimes the processor time of an ended job is reported milliseconds after a sample, and with it up to a second's
joules. Divided by those milliseconds, they would be hundreds of watts that the device never drew::

    samples     ├──────── 1 s ────────┼── 1 s ──┤├ 3 ms          as the account has them
    means       ├──────── 1 s ────────┼──── 1.003 s ──┤          joules are kept, a short interval joins its neighbour
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ecoshare.record.energy_account import EnergyInterval


def coarser(intervals: Iterable[EnergyInterval], shortest_s: float) -> list[EnergyInterval]:
    """Merge intervals into ones of at least `shortest_s` (s) with the same total time and joules.

    Only intervals that touch and have known joules are merged. A known stretch between two gaps stays one interval
    even if it is shorter than `shortest_s`. Intervals without joules stay as they are.
    """
    groups: list[list[EnergyInterval]] = []
    for each in intervals:
        if groups and _touch(groups[-1][-1], each) and not _is_full(groups[-1], each, shortest_s):
            groups[-1].append(each)
        else:
            groups.append([each])
    merged: list[list[EnergyInterval]] = []
    for group in groups:  # the last group of a stretch may be too short
        if merged and _touch(merged[-1][-1], group[0]) and _length_s(group) < shortest_s:
            merged[-1] += group
        else:
            merged.append(group)
    return [group[0] if len(group) == 1 else _sum(group) for group in merged]


def _is_full(group: Sequence[EnergyInterval], more: EnergyInterval, shortest_s: float) -> bool:
    """Whether a group is long enough to refuse `more`; a short `more` still joins, with its late joules."""
    if _length_s(group) < shortest_s:
        return False
    first_s = group[0].from_s
    enough_s = next(each.to_s for each in group if each.to_s - first_s >= shortest_s)
    return more.to_s - enough_s > shortest_s / 2


def _length_s(group: Sequence[EnergyInterval]) -> float:
    return group[-1].to_s - group[0].from_s


def _touch(one: EnergyInterval, other: EnergyInterval) -> bool:
    return one.energy_j is not None and other.energy_j is not None and one.to_s == other.from_s


def _sum(group: Sequence[EnergyInterval]) -> EnergyInterval:
    jobs_j: dict[str, list[float]] = {}
    iterations: Counter[str] = Counter()
    for each in group:
        iterations.update(each.iterations)
        for job, part_j in each.jobs_j.items():
            jobs_j.setdefault(job, []).append(part_j)
    return EnergyInterval(
        group[0].from_s,
        group[-1].to_s,
        math.fsum(each.energy_j or 0.0 for each in group),
        math.fsum(each.idle_j for each in group),
        {job: math.fsum(parts) for job, parts in jobs_j.items()},
        dict(iterations),
    )
