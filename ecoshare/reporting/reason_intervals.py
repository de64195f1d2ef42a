"""Intervals in which a job had one state for one reason, and the rule that joins them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ecoshare.core.reasons import Doing, Explanation, Reason, ReasonKind

_NEAR = 0.05
"""Reasons are alike if their speeds and costs differ by less than this."""

SHORTEST_S = 0.5
"""Shortest interval (s) that is reported. The scheduler decides step by step, so shorter ones are transitional."""

_MOVING = frozenset({ReasonKind.ORDER, ReasonKind.MEMORY, ReasonKind.PLACES, ReasonKind.CHOSEN})
"""Kinds that count as one reason although the jobs and numbers in them change as other jobs come and go."""


@dataclass(slots=True)
class ReasonInterval:
    """Time span in which a job had one state for one reason.

    Attributes:
        reason: State and reason, with the figures from the beginning of the interval.
        to_s: End (s); None while the interval goes on.
    """

    from_s: float
    reason: Reason
    to_s: float | None = None

    def length_s(self, end_s: float) -> float:
        """Length (s) of the interval.

        Args:
            end_s: End (s) of the run, which also ends an open interval.
        """
        return (end_s if self.to_s is None else self.to_s) - self.from_s


@dataclass(slots=True)
class Story:
    """History of one job.

    Attributes:
        remarks: Times (s) and words of other events.
    """

    name: str
    job_class: str
    intervals: list[ReasonInterval] = field(default_factory=list)
    remarks: list[tuple[float, str]] = field(default_factory=list)

    def longest(self, doing: Doing, end_s: float) -> ReasonInterval | None:
        """Longest interval in a state; None if there is none."""
        own = [each for each in self.intervals if each.reason.doing is doing]
        return max(own, key=lambda each: each.length_s(end_s), default=None)


def alike(one: Reason, other: Reason) -> bool:
    """Whether two successive reasons count as one."""
    if one is other:
        return True
    if one.doing is not other.doing or not _alike(one.because, other.because):
        return False
    same = (one.device, one.beside, one.mates) == (other.device, other.beside, other.mates)
    return same and _near(one.speeds, other.speeds)


def _alike(one: Explanation | None, other: Explanation | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.why is not other.why:
        return False
    if one.why in _MOVING:
        return True
    excesses = (one.excess or 0.0,), (other.excess or 0.0,)
    same = (one.jobs, one.instead, one.needs) == (other.jobs, other.instead, other.needs)
    return same and _near(one.speeds, other.speeds) and _near(*excesses)


def _near(some: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return len(some) == len(others) and all(abs(one - other) < _NEAR for one, other in zip(some, others, strict=True))


def joined(intervals: list[ReasonInterval]) -> list[ReasonInterval]:
    """The intervals without transitional ones; neighbours with like reasons become one interval.

    The given intervals are not changed, since stories share them.
    """
    kept: list[ReasonInterval] = []
    for each in intervals:
        is_last = each is intervals[-1]
        if not is_last and each.to_s is not None and each.to_s - each.from_s < SHORTEST_S:
            continue
        if kept and each.from_s - (kept[-1].to_s or 0.0) < SHORTEST_S and alike(kept[-1].reason, each.reason):
            kept[-1] = ReasonInterval(kept[-1].from_s, kept[-1].reason, each.to_s)
        else:
            kept.append(each)
    return kept
