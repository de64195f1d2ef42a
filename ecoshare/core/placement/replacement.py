"""Replacement: better lanes for the jobs of a round, where devices differ in speed and a move costs time.

::

    jobs of the round, in their lanes ──► exchanges of lanes that pay, the best one of each job ──► planned lanes

The planned lanes should make the sum of the remaining times of all jobs small. A job takes faster lanes from another
job, which gets slower ones for them, only if both together gain more than the moves cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ecoshare.core.records import Job, Lane

_PASSES = 3
"""Most times that each job is offered better lanes. Later exchanges gain little."""

_COMPARED, _BOUNDS = 64, 12
"""Most lanes beyond its number that a job compares, and most bounds on the slowness that it tries."""


@dataclass(slots=True, eq=False)
class Placed:
    """A job of the round, with the lanes that are planned for it.

    Attributes:
        job: The job.
        lanes: Numbers of the planned lanes.
        before: Numbers of the lanes in which the job runs; empty if it waits for a place.
        weight_s: Remaining time (s) of the job where it is as fast as on a typical device.
        slow: Slowness of the job in each lane that the round may use: time there / time on a typical device.
        slowness: Slowness of the job in the planned lanes.
    """

    job: Job
    lanes: frozenset[int]
    before: frozenset[int]
    weight_s: float
    slow: Mapping[int, float]
    slowness: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether the job runs and must leave its lanes."""
        return bool(self.before) and self.lanes != self.before


class Replacement:
    """Exchanges of lanes between the jobs of a round."""

    def __init__(self, placed: Sequence[Placed], lanes: Iterable[Lane], across: float, move_s: float) -> None:
        """Jobs in the lanes where they run or would start.

        Args:
            placed: Jobs of the round, those that choose first before the others. No lane has two of them.
            lanes: All lanes that the round may use, each on a device of its own.
            across: Slowness of a gang over several nodes / slowness in one node.
            move_s: Time (s) that a stop and a start cost.
        """
        self._placed, self._across, self._move_s = placed, across, move_s
        self._node = {lane.number: lane.device.node for lane in lanes}
        self._owner = {number: each for each in placed for number in each.lanes}
        for each in placed:
            each.slowness = self._slowness(each, each.lanes)

    def improve(self) -> None:
        """Make exchanges as long as they pay."""
        for _ in range(_PASSES):
            exchanges = [self._exchange(each) for each in self._placed]
            if not any(exchanges):
                break

    def _exchange(self, one: Placed) -> bool:
        """Give a job better lanes if that pays. Returns whether it did."""
        fastest = sorted(one.slow, key=one.slow.__getitem__)[: len(one.lanes) + _COMPARED]
        least = one.slow[fastest[len(one.lanes) - 1]]
        cost_s = self._move_s if one.before and not one.moves else 0.0
        if one.weight_s * (one.slowness - least) <= cost_s:
            return False
        best_s, best = -1e-6, None
        for wanted in self._wanted(one, fastest):
            after = self._after(one, wanted)
            if after is not None and (change_s := self._change_s(after)) < best_s:
                best_s, best = change_s, after
        if best is None:
            return False
        for each, lanes in best.items():
            for number in each.lanes:
                if self._owner.get(number) is each:
                    del self._owner[number]
            each.lanes, each.slowness = lanes, self._slowness(each, lanes)
            self._owner.update(dict.fromkeys(lanes, each))
        return True

    def _wanted(self, one: Placed, fastest: Sequence[int]) -> Iterator[frozenset[int]]:
        """Sets of lanes that would be less slow for a job."""
        size = len(one.lanes)
        below = [number for number in fastest if one.slow[number] < max(one.slow[each] for each in one.lanes)]
        harm_s = {number: self._harm_s(one, number) for number in below}
        levels = sorted({one.slow[number] for number in below[size - 1 :]}, reverse=True)
        for level in levels[:: max(1, len(levels) // _BOUNDS)]:
            kept = [number for number in one.lanes if one.slow[number] <= level]
            others = [number for number in below if one.slow[number] <= level and number not in one.lanes]
            others.sort(key=lambda number: (harm_s[number], one.slow[number]))
            if len(kept) + len(others) >= size:
                yield frozenset([*kept, *others[: size - len(kept)]])
        if size > 1:
            nodes: dict[str, list[int]] = {}
            for number in fastest:
                here = nodes.setdefault(self._node[number], [])
                here.append(number)
                if len(here) == size and one.lanes != frozenset(here):
                    yield frozenset(here)

    def _harm_s(self, one: Placed, number: int) -> float:
        """Time (s) that the owner of a lane would lose about if it got the slowest lane of `one` for it."""
        owner = self._owner.get(number)
        if owner is None or owner is one:
            return 0.0
        worst = max(one.lanes, key=one.slow.__getitem__)
        slower = max(owner.slow[worst], *(owner.slow[each] for each in owner.lanes if each != number), 0.0)
        cost_s = self._move_s if owner.before and not owner.moves else 0.0
        return owner.weight_s * (slower - owner.slowness) + cost_s

    def _after(self, one: Placed, wanted: frozenset[int]) -> dict[Placed, frozenset[int]] | None:
        """Lanes of all jobs that an exchange concerns; None if a job would span too many nodes."""
        taken = sorted(wanted - one.lanes)
        left = sorted(one.lanes - wanted)
        left += [number for number in self._node if number not in self._owner and number not in wanted]
        losers: dict[Placed, list[int]] = {}
        for number in taken:
            if (owner := self._owner.get(number)) is not None:
                losers.setdefault(owner, []).append(number)
        after = {one: wanted}
        for owner in sorted(losers, key=lambda each: -each.weight_s * len(losers[each])):
            lost = losers[owner]
            left.sort(key=owner.slow.__getitem__)
            after[owner] = (owner.lanes - frozenset(lost)) | frozenset(left[: len(lost)])
            del left[: len(lost)]
        for each, lanes in after.items():
            nodes = each.job.spec.nodes
            if nodes is not None and len({self._node[number] for number in lanes}) > nodes:
                return None
        return after

    def _change_s(self, after: Mapping[Placed, frozenset[int]]) -> float:
        """Change (s) of the sum of the remaining times, with the costs of moves."""
        change_s = 0.0
        for each, lanes in after.items():
            change_s += each.weight_s * (self._slowness(each, lanes) - each.slowness)
            if each.before:
                change_s += self._move_s * ((lanes != each.before) - (each.lanes != each.before))
        return change_s

    def _slowness(self, one: Placed, lanes: Iterable[int]) -> float:
        slowest = max(one.slow[number] for number in lanes)
        spans = len(one.lanes) > 1 and len({self._node[number] for number in lanes}) > 1
        return slowest * self._across if spans else slowest
