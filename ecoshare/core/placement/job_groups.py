"""Groups of jobs that run at once on a device, each in a lane of its own.

::

    candidates, in the policy's order      A  B  C  D  E          A goes first: it is in every group
    A with up to two mates                 A  A+B  A+C ... A+D+E  the best of them
    grow by one job at a time              A+D+E+B                while a job makes the group better
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import inf
from operator import attrgetter
from statistics import NormalDist
from typing import NamedTuple

from ecoshare.core.placement.colocation_estimates import ColocationEstimates, ColocationForecast

GAIN = 0.02
"""Least relative gain of a larger group over a smaller one. A smaller gain would not be worth the memory it takes."""

MORE_WORK = 0.5
"""Jobs' work per second by which a group is faster than another one at the same cost, and then chosen without a gain.

Prices make the groups of the cheapest plan equally cheap, so joules alone do not tell which of them to run first. Jobs
that hardly slow their neighbours would run late, or alone: it was seen.
"""

HOPE = 0.5
"""Standard deviations by which groups are hoped to be faster than expected.

Without hope, a group that pays might never be tried. A group that does not pay is parted as soon as it was measured.
"""

EXPLORE = 1.5
"""Hope for a job that will be measured as soon as it is warm: after seconds beside other jobs, its class is known."""

TRIAL_S = 5.0
"""Time (s) for which a group runs until it was measured, and is parted if it does not pay. All its jobs have reported
by then, the packing was measured for two to five seconds, and the adviser has answered."""

MOST_NEW = 2
"""Most jobs of unknown classes in a group. More of them, all busy, would be slow until each was measured."""

MOST_BUSY = 1.1
"""Largest sum of the busy parts of a group on processors in which a job is about to be measured.

Most scripts keep all processors busy. Two of them that got warm beside each other took seven seconds for it where one
after the other takes one each.
"""

_MOST_KEPT = 16_384
"""Most forecasts that are kept, for the groups asked about last: some ten megabytes."""

_MATES = 2
"""Most mates that are added together. With three, thirty candidates would have thousands of groups."""


class Candidate(NamedTuple):
    """Job that could run on the device now.

    Attributes:
        number: Number of the job. Equal numbers mean the same job.
        job_class: Class of the job.
        worth: Worth of a second of its work alone, in the unit of the objective.
        least: Least relative speed that the job must keep; 0 for no limit.
        must: Whether the job runs on the device and its slowdown limit does not let it wait.
        urgency: Priority among jobs that must run and cannot all run at once: the largest goes first.
        hope: Standard deviations by which the job is hoped to be faster than expected.
        busy: Part of the processors that the job keeps busy alone. It is 1 if the job is about to be measured, and 0
            if it has no iteration so far, or is on another device.
        left_s: Work (s alone) that is left of all jobs of its class.
    """

    number: int
    job_class: str
    worth: float
    least: float = 0.0
    must: bool = False
    urgency: float = 0.0
    hope: float = HOPE
    busy: float = 0.0
    left_s: float = inf

    @property
    def alike(self) -> tuple[object, ...]:
        """All fields but the number. Candidates that are equal here have the same value in every group."""
        return self.job_class, self.worth, self.least, self.must, self.urgency, self.hope, self.busy, self.left_s

    @property
    def is_new(self) -> bool:
        """Whether its class is unknown and will be measured as soon as the job is warm."""
        return self.hope == EXPLORE


Fits = Callable[[Sequence[Candidate]], bool]
"""Whether these candidates can be on the device at once."""


class JobGroup(NamedTuple):
    """Group of co-located jobs with its forecast.

    Attributes:
        members: Jobs of the group.
        forecast: Expected speeds and power.
        cost: Cost per second / worth of the work done per second; smaller is better.
    """

    members: tuple[Candidate, ...]
    forecast: ColocationForecast
    cost: float

    @property
    def keeps_limits(self) -> bool:
        """Whether every job is expected to keep its least speed, with one standard deviation to spare."""
        speeds = zip(self.members, self.forecast.speeds, self.forecast.errors, strict=True)
        return all(not each.least or speed - error >= each.least for each, speed, error in speeds)

    @property
    def tries_few(self) -> bool:
        """Whether the group has at most `MOST_NEW` jobs of unknown classes, and processors for those that work."""
        new = [each for each in self.members if each.is_new]
        if any(each.busy for each in new) and sum(each.busy for each in self.members) > MOST_BUSY:
            return False
        return len(new) <= MOST_NEW

    def beats(self, other: JobGroup) -> bool:
        """Whether this group is clearly better than another one: by `GAIN`, or by `MORE_WORK` at the same cost."""
        if self.cost < other.cost * (1.0 - GAIN):
            return True
        more_work = sum(self.forecast.speeds) - sum(other.forecast.speeds)
        return self.cost <= other.cost and more_work >= MORE_WORK


_ONE_WATT = ColocationForecast((1.0,), (0.0,), 1.0)


class Grouping:
    """Choice of groups under one objective.

    Attributes:
        counts_power: Whether power counts in the objective.
    """

    def __init__(
        self, outlook: ColocationEstimates, spent: Callable[[ColocationForecast], float], largest: int
    ) -> None:
        """Choice of groups by these estimates.

        Args:
            outlook: Estimates for co-located jobs.
            spent: Cost per second of a device with a forecast, in the unit of the objective.
            largest: Most jobs in a group.
        """
        self._outlook, self._spent, self._largest = outlook, spent, largest
        self.counts_power = spent(_ONE_WATT) != spent(_ONE_WATT.drawing(2.0))
        self._expected = lru_cache(_MOST_KEPT)(self._expect)

    def of(self, members: Sequence[Candidate]) -> JobGroup:
        """Group of these members, with its forecast and cost."""
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
        """Forecast for these classes, hoped-for speeds, and cost per second. The version keeps the cache up to date."""
        expected = self._outlook.forecast(classes)
        hoped = self._outlook.hoped(classes, expected, hope, self.counts_power)
        return expected, hoped.speeds, self._spent(hoped)

    def best(self, candidates: Sequence[Candidate], fits: Fits) -> JobGroup | None:
        """Best group with the first candidate and all that must run; None without candidates.

        If the first candidate may not run beside those that must, it waits. If those that must run are too many, or too
        slow together and faster in turn, only the most urgent of them run until others become more urgent.

        Args:
            candidates: Jobs in the order of the policy.
            fits: Whether candidates can be on the device at once. True for all jobs on the device and the first one.
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
        kinds = _kinds([each for each in candidates if each not in base], self._largest)
        others = [each for same in kinds for each in same[:_MATES]]
        for count in range(1, min(_MATES, self._largest - len(base)) + 1):
            larger = ((*base, *mates) for mates in combinations(others, count))
            best = self._better(best, larger, fits)
        while len(best.members) < self._largest:
            left = (next((each for each in same if each not in best.members), None) for same in kinds)
            larger = ((*best.members, each) for each in left if each is not None)
            if (grown := self._better(best, larger, fits)) is best:
                break
            best = grown
        return best

    def _better(self, best: JobGroup, larger: Iterable[tuple[Candidate, ...]], fits: Fits) -> JobGroup:
        """Best of some larger groups, if it is clearly better than the smaller group `best`; else `best`."""
        better = []
        for members in larger:
            forecast, cost = self._worth(members)
            if cost > best.cost:  # most groups cost too much, so no object is made for them
                continue
            group = JobGroup(members, forecast, cost)
            if group.beats(best) and group.keeps_limits and group.tries_few and self.pays(group, best):
                better.append(group)
        return next((each for each in sorted(better, key=attrgetter("cost")) if fits(each.members)), best)

    def pays(self, group: JobGroup, instead: JobGroup) -> bool:
        """Whether trying a group is expected to save more in the work that is left than the trial costs.

        A group that is expected to be better needs no trial. Another one may turn out to be better, by its errors::

            expected loss of a second * TRIAL_S   <=   expected gain of a second, if it is one * time that is left

        The gain of a second is what the work done in it would have cost in `instead`, less what the second costs. It
        is taken to have a normal distribution. Work of later runs does not count: a run with more work tries for
        itself.

        Args:
            group: A group that is hoped to be better.
            instead: Group that would run otherwise.
        """
        members, expected = group.members, group.forecast
        mean = self._gain(members, expected, instead.cost)
        if not mean < 0.0:
            return True
        hoped = self._outlook.hoped([each.job_class for each in members], expected, 1.0, self.counts_power)
        spread = self._gain(members, hoped, instead.cost) - mean
        if spread <= 0.0:
            return False
        left_s = min(each.left_s / speed for each, speed in zip(members, hoped.speeds, strict=True))
        below = NormalDist(mean, spread)
        gain = mean * (1.0 - below.cdf(0.0)) + spread * spread * below.pdf(0.0)
        return gain * left_s >= -mean * TRIAL_S

    def _gain(self, members: Sequence[Candidate], forecast: ColocationForecast, cost: float) -> float:
        """Cost elsewhere of the work of a second, less the cost of the second here: in the unit of the objective."""
        worth = sum([speed * each.worth for speed, each in zip(forecast.speeds, members, strict=True)])
        return cost * worth - self._spent(forecast)

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
    """Whether the members come nearer to their least speeds in turns, with shares in proportion to those speeds."""
    beside = min(speed / each.least for each, speed in zip(group.members, group.forecast.speeds, strict=True))
    return beside * sum(each.least for each in group.members) < 1.0


def _kinds(candidates: Sequence[Candidate], most: int) -> list[list[Candidate]]:
    """First `most` candidates of each kind: no more of a sweep of a thousand trials need to be looked at."""
    alike: dict[tuple[str, float, float], list[Candidate]] = {}
    for each in candidates:
        same = alike.setdefault((each.job_class, each.worth, each.least), [])
        if len(same) < most:
            same.append(each)
    return list(alike.values())
