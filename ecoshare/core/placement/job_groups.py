"""Who runs beside each other on a device: a group of jobs, each in a lane of its own.

::

    candidates, in the policy's order      A  B  C  D  E          A goes first: it is in every group
    all with up to two mates               A  A+B  A+C ... A+D+E  the best of them
    grow by who makes that better          A+D+E+B                as long as somebody does
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from operator import attrgetter
from typing import NamedTuple

from ecoshare.core.placement.colocation_estimates import ColocationEstimates, ColocationForecast

GAIN = 0.02
"""By how much a larger group must be better: less would not be worth the memory that it takes."""

HOPE = 0.5
"""Standard deviations by which groups are hoped to be faster than expected: one that pays might never be tried else,
and one that does not is parted as soon as it was measured."""

EXPLORE = 1.5
"""The same for a job that will be measured as soon as it is warm: it is beside others for seconds, and known then."""

MOST_NEW = 2
"""Jobs of unknown classes beside each other: more of them, all busy, would be slow until each was measured."""

_MOST_KEPT = 16_384
"""Forecasts that are kept, of the groups that were asked about last: some ten megabytes."""

_MATES = 2
"""That are looked at together: with three, thirty candidates would have thousands of groups."""


class Candidate(NamedTuple):
    """A job that could run on the device now.

    Attributes:
        number: Its own; equal ones are the same job.
        worth: Of a second of its work alone, in the objective's own unit.
        least: Speed over that alone that it must keep; 0 for none.
        must: It runs there, and its limit does not let it wait.
        urgency: Who goes first of those that must run and cannot all at once: the largest.
        hope: Standard deviations by which it is hoped to be faster than expected.
    """

    number: int
    job_class: str
    worth: float
    least: float = 0.0
    must: bool = False
    urgency: float = 0.0
    hope: float = HOPE

    @property
    def alike(self) -> tuple[object, ...]:
        """All but its number: candidates that have this in common are worth the same in every group."""
        return self.job_class, self.worth, self.least, self.must, self.urgency, self.hope

    @property
    def is_new(self) -> bool:
        """Whether its class is unknown, and measured as soon as the job is warm."""
        return self.hope == EXPLORE


Fits = Callable[[Sequence[Candidate]], bool]
"""Whether these can be on the device at once."""


class JobGroup(NamedTuple):
    """Jobs beside each other, and what is expected of them.

    Attributes:
        cost: What is spent for what they are worth; smaller is better.
    """

    members: tuple[Candidate, ...]
    forecast: ColocationForecast
    cost: float

    @property
    def keeps_limits(self) -> bool:
        """Whether every job is expected to be as fast as it must be, with a standard deviation to spare."""
        speeds = zip(self.members, self.forecast.speeds, self.forecast.errors, strict=True)
        return all(not each.least or speed - error >= each.least for each, speed, error in speeds)

    @property
    def tries_few(self) -> bool:
        """Whether no more unknown classes are beside each other than can be tried at a time."""
        return sum(each.is_new for each in self.members) <= MOST_NEW


class Grouping:
    """Chooses groups under one objective."""

    def __init__(
        self, outlook: ColocationEstimates, spent: Callable[[ColocationForecast], float], largest: int
    ) -> None:
        """An objective.

        Args:
            spent: In a second, by a device of which this is expected.
            largest: Most jobs in a group.
        """
        self._outlook, self._spent, self._largest = outlook, spent, largest
        self._expected = lru_cache(_MOST_KEPT)(self._expect)

    def of(self, members: Sequence[Candidate]) -> JobGroup:
        """What these would be worth beside each other."""
        return JobGroup(tuple(members), *self._worth(members))

    def _worth(self, members: Sequence[Candidate]) -> tuple[ColocationForecast, float]:
        """Forecast and cost of a group."""
        classes = tuple([each.job_class for each in members])
        hope = max([each.hope for each in members], default=HOPE)
        expected, speeds, spent = self._expected(self._outlook.version, classes, hope)
        worth = sum([speed * each.worth for speed, each in zip(speeds, members, strict=True)])
        return expected, spent / worth if worth > 0.0 else float("inf")

    def _expect(
        self, _version: int, classes: tuple[str, ...], hope: float
    ) -> tuple[ColocationForecast, tuple[float, ...], float]:
        """By a version of the outlook: what is expected of these classes, speeds hoped for, and what they spend."""
        expected = self._outlook.forecast(classes)
        hoped = self._outlook.hoped(classes, expected, hope)
        return expected, hoped.speeds, self._spent(hoped)

    def best(self, candidates: Sequence[Candidate], fits: Fits) -> JobGroup | None:
        """The best group with the first candidate and all that must run; None where there is nobody.

        Where the first one may not be beside those that must run, it waits; where these would all run too slowly and in
        turn would not, the most urgent ones do, until others are more urgent.

        Args:
            candidates: In the policy's order.
            fits: True for all that are there already, and for the first one.
        """
        if not candidates:
            return None
        must = [each for each in candidates if each.must]
        first = [] if candidates[0].must else [candidates[0]]
        best = self.of([*first, *must])
        if must and first and not self._may(best):
            best = self.of(must)
        if len(must) > 1 and not self._may(best) and (len(must) > self._largest or _better_in_turn(best)):
            return self._most_urgent(must)
        base = best.members
        others = _distinct([each for each in candidates if each not in base])
        for count in range(1, min(_MATES, self._largest - len(base)) + 1):
            larger = ((*base, *mates) for mates in combinations(others, count))
            best = self._better(best, larger, fits)
        while len(best.members) < self._largest:
            larger = ((*best.members, each) for each in others if each not in best.members)
            if (grown := self._better(best, larger, fits)) is best:
                break
            best = grown
        return best

    def _better(self, best: JobGroup, larger: Iterable[tuple[Candidate, ...]], fits: Fits) -> JobGroup:
        """The best of some larger groups, if it is clearly better than a smaller one."""
        better, most = [], best.cost * (1.0 - GAIN)
        for members in larger:
            forecast, cost = self._worth(members)  # most groups cost too much, and need not be made
            if cost < most and (group := JobGroup(members, forecast, cost)).keeps_limits and group.tries_few:
                better.append(group)
        return next((each for each in sorted(better, key=attrgetter("cost")) if fits(each.members)), best)

    def _may(self, group: JobGroup) -> bool:
        return len(group.members) <= self._largest and group.keeps_limits

    def _most_urgent(self, must: Sequence[Candidate]) -> JobGroup:
        most, *others = sorted(must, key=attrgetter("urgency"), reverse=True)
        best = self.of([most])
        for each in others:
            if self._may(grown := self.of([*best.members, each])):
                best = grown
        return best


def _better_in_turn(group: JobGroup) -> bool:
    """Whether these come nearer to what each must keep if they run one at a time, each for its part."""
    beside = min(speed / each.least for each, speed in zip(group.members, group.forecast.speeds, strict=True))
    return beside * sum(each.least for each in group.members) < 1.0


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of those that are alike the first two: of a sweep of a thousand, no more need to be looked at."""
    alike: dict[tuple[str, float, float], list[Candidate]] = {}
    for each in candidates:
        same = alike.setdefault((each.job_class, each.worth, each.least), [])
        if len(same) < _MATES:
            same.append(each)
    return [each for same in alike.values() for each in same]
