"""What a job did from when to when, and why; and which reasons are told as one."""

from __future__ import annotations

from dataclasses import dataclass, field

from ecoshare.core.placement.group_choice import Explanation, ReasonKind
from ecoshare.core.reasons import Doing, Reason

_NEAR = 0.05
"""Speeds and costs that differ by less are the same reason."""

SHORTEST_S = 0.5
"""The scheduler decides step by step: what lasts for less than this is no reason, but on the way to one."""

_MOVING = frozenset({ReasonKind.ORDER, ReasonKind.MEMORY, ReasonKind.PLACES, ReasonKind.CHOSEN})
"""Reasons whose names and numbers change as others come and go, and that stay the same all the while."""


@dataclass(slots=True)
class ReasonInterval:
    """A time in which a job did the same for the same reason.

    Attributes:
        reason: As it was when it began.
        to_s: None while it goes on.
    """

    from_s: float
    reason: Reason
    to_s: float | None = None

    def length_s(self, end_s: float) -> float:
        """How long it lasted.

        Args:
            end_s: Of the run, where it has no end.
        """
        return (end_s if self.to_s is None else self.to_s) - self.from_s


@dataclass(slots=True)
class Story:
    """What happened to one job.

    Attributes:
        remarks: When, and what else there is to say, in words.
    """

    name: str
    job_class: str
    intervals: list[ReasonInterval] = field(default_factory=list)
    remarks: list[tuple[float, str]] = field(default_factory=list)

    def total_s(self, doing: Doing, end_s: float) -> float:
        """How long it did this."""
        return sum(each.length_s(end_s) for each in self.intervals if each.reason.doing is doing)

    def longest(self, doing: Doing, end_s: float) -> ReasonInterval | None:
        """The longest time that it did this for one reason; None where it never did."""
        own = [each for each in self.intervals if each.reason.doing is doing]
        return max(own, key=lambda each: each.length_s(end_s), default=None)

    def mates(self) -> list[str]:
        """With whom it has shared its device."""
        own = [each.reason for each in self.intervals if each.reason.doing is Doing.SHARES]
        return list(dict.fromkeys(name for reason in own for name in (*reason.beside, *reason.mates)))


def alike(one: Reason, other: Reason) -> bool:
    """Whether two reasons, one after the other, are told as one."""
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
    """Without those that were only on the way to the next, and what is alike on both sides of them as one.

    Given intervals stay as they are: stories share them.
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
