"""Writes the reasons of the scheduler in words for the user."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ecoshare.base.plural import counted
from ecoshare.core.placement.job_groups import GAIN
from ecoshare.core.reasons import Doing, Explanation, Reason, ReasonKind
from ecoshare.jobs.quantities import format_duration, format_size

_SPENT = {"energy": ("joules", "fewer", "as many"), "edp": ("joules x time", "less", "as much")}
_TIME = ("time", "less", "as much")
"""Quantity that a policy minimizes, with the words for less of it and for as much of it."""

_SAME = 0.0005
"""Relative differences below this would read as 0.0 %."""

_MOST_NAMED = 6


def reason_words(job: str, reason: Reason, policy: str, services: Collection[str] = ()) -> str:
    """State of a job and its reason, such as `waited: all places were taken (by a and b)`.

    Args:
        job: Name of the job.
        policy: Policy of the run, which decides what makes a group better.
        services: Names of the services of the run.
    """
    beside = listed(reason.beside)
    why = "" if reason.because is None else because_words(job, reason.because, policy)
    match reason.doing:
        case Doing.WAITS:
            return f"waited: {why}"
        case Doing.PARKED:
            return f"parked, with its memory on the host: {why}"
        case Doing.PARKS:
            return "moved its memory to the host"
        case Doing.RESUMES:
            return "got its memory back from the host"
        case Doing.ALONE:
            return f"alone: {why}" if why else "alone: there was no other job"
        case Doing.BEHIND:
            behind = f"behind {beside}, with turns that were left over" if beside else "behind other jobs"
            return f"{behind}: {why}" if why else behind
        case Doing.SHARES:
            return _shares(job, reason, services)
        case Doing.BLOCKED:
            return f"had no turn: {beside} kept the lane for child processes"
        case Doing.MEASURED:
            return "measured alone, since nothing was known of its class"
        case Doing.PAUSED:
            return f"paused: {beside} was measured alone"
        case Doing.STARTS:
            return "started"
        case Doing.HELD:
            return "held by the user"
    return "was told to stop"


def _shares(job: str, reason: Reason, services: Collection[str]) -> str:
    others = (*reason.mates, *reason.beside)
    if job in services:
        return f"answered its requests beside {listed(others)}"
    if served := [each for each in others if each in services]:
        rest = [each for each in others if each not in services]
        have = "has the turn" if len(served) == 1 else "have the turn"
        before = f"shared with {listed(rest)}, and with {listed(served)}" if rest else f"shared with {listed(served)}"
        return f"{before}, which {have} only for requests"
    parts = [f"took turns with {listed(reason.mates)}"] if reason.mates else []
    parts += [f"ran beside {listed(reason.beside)}"] if reason.beside else []
    expected = f": expected at {speeds(reason.speeds)} of their speeds alone" if reason.speeds else ""
    return ", ".join(parts) + expected


def because_words(job: str, because: Explanation, policy: str) -> str:
    """Reason why a job does not run, or runs alone."""
    jobs = because.jobs
    match because.why:
        case ReasonKind.OPENING:
            return "the lanes were being opened"
        case ReasonKind.SUSPECT:
            return (
                f"it or {listed(jobs)} has died twice with the process that others depend on, and runs when no other "
                "job does"
            )
        case ReasonKind.DEVICES:
            return f"it takes {counted(because.needs or 0, 'empty device')}, and there were {because.free}"
        case ReasonKind.GANG:
            return f"{listed(jobs)} had the device to itself"
        case ReasonKind.ORDER:
            ahead = because.ahead or 0
            if not ahead:
                return "its turn by the policy had not come"
            others = f"{counted(ahead, 'other')} {'was' if ahead == 1 else 'were'}"
            return f"{others} before it by the policy ({listed(jobs, ahead)})"
        case ReasonKind.WINDOW:
            return f"{listed(jobs)} was measured alone, and no job may start meanwhile"
        case ReasonKind.TRIAL if jobs == (job,):
            return "it was being measured"
        case ReasonKind.TRIAL:
            return f"{listed(jobs)} {_were(jobs)} being measured, and no job may start meanwhile"
        case ReasonKind.PLACES:
            return f"all places were taken (by {listed(jobs)})"
        case ReasonKind.FULL:
            return f"{listed(jobs)} had to go on, and there were no more lanes"
        case ReasonKind.MEMORY:
            return _memory(job, because)
        case ReasonKind.LATENCY:
            return _latency(job, because)
        case ReasonKind.NEW:
            return f"{listed(jobs)} were not known yet either, and so many are tried beside each other at a time"
        case ReasonKind.BUSY:
            first = "a class without a sound profile is measured first"
            return f"beside {listed(jobs)} it would keep the processors busy, and {first}"
        case ReasonKind.LIMIT:
            return _limit(job, because)
        case ReasonKind.UNTRIED:
            beside = f"beside {listed(jobs)} ({speeds(because.speeds)} of their speeds alone, or more)"
            return f"to try it {beside} would cost more than that can save in the work that is left"
        case ReasonKind.WORSE:
            return _worse(job, because, policy)
        case ReasonKind.CHOSEN:
            return "it was about to start"
    return "there was no other job"


def _memory(job: str, because: Explanation) -> str:
    newcomers = listed(because.jobs) if because.jobs else "it"
    if because.needs_bytes is None or because.free_bytes is None:
        return f"there was no memory for {newcomers}"
    free = format_size(max(0, because.free_bytes))
    return f"{newcomers} would take {format_size(because.needs_bytes)} more memory, and {free} were free"


def _latency(job: str, because: Explanation) -> str:
    service, other = because.jobs
    times = (because.longest_s, because.takes_s, because.target_s)
    longest, takes, target = (format_duration(each or 0.0) for each in times)
    holds = "it" if other == job else other
    answers = "its answers" if service == job else f"answers of {service}"
    return f"{holds} holds the turn for up to {longest} at a time, so {answers} could take {takes} (target: {target})"


def _limit(job: str, because: Explanation) -> str:
    """Words about the slowdown limit that would be broken by most."""
    names = (job, *because.jobs)
    limited = [place for place, least in enumerate(because.least) if least > 0.0]
    tightest = min(limited, key=lambda place: because.speeds[place] - because.least[place], default=0)
    beside = [name for name in names if name != names[tightest]]
    least, speed = because.least[tightest], because.speeds[tightest]
    too_near = ", which is too uncertain" if speed >= least else ""
    slower = 1.0 / speed if speed > 0.0 else math.inf
    return (
        f"beside {listed(beside)}, {names[tightest]} may have a slowdown of {1.0 / least:.2f} (`slowdown:`), "
        f"and {slower:.2f} was expected{too_near}"
    )


def _worse(job: str, because: Explanation, policy: str) -> str:
    what, less, same = _SPENT.get(policy, _TIME)
    excess = because.excess or 0.0
    beside = f"beside {listed(because.jobs)}" if because.jobs else "alone"
    expected = f" ({speeds(because.speeds)} of their speeds alone)" if because.jobs else ""
    instead = listed(because.instead) + (" alone" if len(because.instead) == 1 else "")
    by = f" by {instead}" if because.instead and set(because.instead) != {job} else ""
    if abs(excess) < _SAME:
        return f"{beside}{expected} the work would have taken {same} {what}" + (f" as{by}" if by else "")
    if excess > 0.0:
        than = f" than{by}" if by else ""
        return f"{beside}{expected} the work would have taken {percent(excess)} more {what}{than}"
    if excess > -GAIN:
        return f"{beside}{expected} the work would have taken only {percent(-excess)} {less} {what}"
    return f"{beside}{expected} the work takes {percent(-excess)} {less} {what}, as soon as that can be"


def speeds(values: Sequence[float]) -> str:
    """Relative speeds in words, such as `0.93 and 0.88`."""
    return listed([f"{value:.2f}" for value in values])


def percent(part: float) -> str:
    """A part of 1 in per cent; with one decimal below 10 %."""
    return f"{100 * part:.0f} %" if part >= 0.0995 else f"{100 * part:.1f} %"


def listed(names: Sequence[str], count: int | None = None) -> str:
    """Names in words: `a`, `a and b`, `a, b and c`; of many only the first, such as `a, b and 3 more`.

    Args:
        count: Number of all names, if `names` does not have all of them.
    """
    count = len(names) if count is None else count
    shown = list(names[:_MOST_NAMED])
    if count > len(shown):
        return f"{', '.join(shown)} and {count - len(shown)} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _were(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"


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
