"""Estimates for co-located jobs: the speed of each job, and the power of the device.

An adviser predicts the speeds of pairs from measurements of single classes and of packings. The core only adds up.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import ColocationMeasurement, PairSpeed

BESIDE = 0.68
"""Relative speed of a job beside a neighbour, if nothing is known about the pair.

The value is half of 1.37, the median combined speed of all pairs that Gavel measured on a V100 (Narayanan et al., OSDI
2020).
"""

IDLE_SHARE = 0.16
"""Power of an idle device / power with one job, if neither is known.

The value is the ratio of 0.12 to 0.75 of the power limit, as in `ecoshare/simulation/cluster.py`.
"""

MEASURED_ERROR = 0.02
"""Standard deviation of the measured speed of a job / that speed."""

UNKNOWN_W = 1.0
"""Power (W) of a class alone, if the power of no class is known. Only ratios matter then."""


class FirstGuess(NamedTuple):
    """Relative speed of a job beside another one before any measurement of the two.

    Attributes:
        beside: The speed if nothing is known about either job.
        both_busy: The speed if both jobs always keep the device busy.
        shares_time: Whether the jobs share the time of the device, as on processors. Jobs that want more than all of
            it keep the device busy all the time, however slow they are.
    """

    beside: float
    both_busy: float
    shares_time: bool = False

    def speed(self, busy: float | None, other: float | None) -> float:
        """1 / (1 + k over): `over` is the sum of both busy parts beyond 1, and k gives `both_busy` if both are 1.

        Args:
            busy: Part of its time alone for which the job keeps the device busy. An unknown one is taken as 1 beside a
                job with a known one.
            other: The same for the neighbour.
        """
        if busy is None and other is None:
            return self.beside
        over = (1.0 if busy is None else busy) + (1.0 if other is None else other) - 1.0
        return 1.0 / (1.0 + (1.0 / self.both_busy - 1.0) * max(0.0, over))


GPU_GUESS = FirstGuess(BESIDE, BESIDE)
"""First guess for GPUs."""

PROCESSORS_GUESS = FirstGuess(0.4, 0.35, shares_time=True)
"""First guess for processors, where most scripts keep all of them busy.

Each of two such jobs has half of the processors, and loses more: the threads of an operation wait for each other, and
for those of the neighbour. Measured on two cores: 0.42 to 0.49 for large matrices, 0.17 to 0.3 for operations of well
under a millisecond (the examples).
"""


@dataclass(frozen=True, slots=True)
class ColocationForecast:
    """Forecast for jobs on one device, each in a lane of its own.

    Attributes:
        speeds: Relative speed of each job: rate beside the others / rate alone, at the default setting.
        errors: Standard deviation of each speed.
        power_w: Power (W) of the whole device.
    """

    speeds: tuple[float, ...]
    errors: tuple[float, ...]
    power_w: float

    def drawing(self, power_w: float) -> ColocationForecast:
        """The same speeds at another power."""
        return replace(self, power_w=power_w)


@dataclass(slots=True)
class ColocationEstimates:
    """Present knowledge of classes and pairs.

    Attributes:
        guess: First guess for pairs of which the adviser has said nothing so far.
        solos: Measurements of each class alone.
        pairs: Predicted speed of a class beside a neighbour, by (class, class of the neighbour).
        prices: Worth (J) of a second of each class's work alone.
        version: Number that changes whenever more is known.
    """

    guess: FirstGuess = GPU_GUESS
    solos: dict[str, Solo] = field(default_factory=dict)
    pairs: dict[tuple[str, str], PairSpeed] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    version: int = 0
    _stand_ins: dict[str, tuple[str, ...]] = field(default_factory=dict)  # for classes of the last answer
    _alike: dict[Solo | None, tuple[str, ...]] = field(default_factory=dict)  # the same by figures
    _asked: tuple[dict[str, tuple[str, ...]], dict[Solo | None, tuple[str, ...]]] = ({}, {})  # those of the next answer
    _delays: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _larger: dict[tuple[str, ...], tuple[float, ...]] = field(default_factory=dict)  # sorted classes, their speeds
    _drawn: dict[tuple[str, ...], float] = field(default_factory=dict)  # sorted classes: drawn / expected above idle
    _watts: tuple[float, float] = (UNKNOWN_W, IDLE_SHARE * UNKNOWN_W)

    def learn(self, job_class: str, solo: Solo) -> None:
        """Note the measurements of a class alone."""
        self.version += 1
        self.solos[job_class] = solo
        powers = [each.power_w for each in self.solos.values() if each.power_w is not None]
        idles = [each.idle_w for each in self.solos.values() if each.idle_w is not None]
        power_w = sum(powers) / len(powers) if powers else UNKNOWN_W
        self._watts = power_w, min(idles, default=IDLE_SHARE * power_w)

    def asked_about(self, work_s: Mapping[str, float], met: Container[str], most: int) -> dict[str, float]:
        """Classes that the adviser is to be asked about, with their work (s).

        Classes of one script that were never measured look alike, and a queue may have hundreds of them. Two stand for
        all, since a class beside itself may differ from one beside another.

        Args:
            work_s: Work of all classes.
            met: Classes of measured co-locations, which look like no other.
            most: Most classes in a question.
        """
        asked, stand_ins = dict[str, float](), dict[str, tuple[str, ...]]()
        alike: dict[Solo | None, tuple[str, ...]] = {}
        for name, own_s in work_s.items():
            solo = self.solos.get(name)
            looks_alike = name not in met and (solo is None or solo.iteration_s is None)
            names = alike.get(solo, ()) if looks_alike else ()
            if len(names) == _PAIR:
                asked[names[1]] += own_s
            elif len(asked) < most:
                asked[name] = own_s
                names = (*names, name)
                if looks_alike:
                    alike[solo] = names
            stand_ins[name] = names
        self._asked = stand_ins, alike
        return asked

    def counted(self, jobs: Mapping[str, int]) -> dict[str, int]:
        """Number of jobs for which each class of the next question stands, from that of all classes."""
        found = dict[str, int]()
        for name, count in jobs.items():
            stands = self._asked[0].get(name, ())
            if stands:
                first = name if name in stands else stands[-1]
                found[first] = found.get(first, 0) + count
        return found

    def foreseen(
        self, pairs: Iterable[PairSpeed], prices: dict[str, float], seen: Sequence[ColocationMeasurement] = ()
    ) -> None:
        """Note the answer of the adviser, in place of its last one.

        Args:
            pairs: Predicted speeds.
            prices: Worth (J) of a second of each class's work alone.
            seen: All measured co-locations, the oldest first. Those of three jobs and more speak for themselves.
        """
        self.version += 1
        for each in seen:
            if len(each.classes) > _PAIR:
                classes, speeds = zip(*sorted(zip(each.classes, each.speeds, strict=True)), strict=True)
                self._larger[classes] = tuple(min(1.0, speed) for speed in speeds)
        self._drawn = self._as_measured(seen) if self.guess.shares_time else {}
        self.pairs = {(each.one, each.other): each for each in pairs}
        self._delays = {pair: _delay(each.speed, each.error) for pair, each in self.pairs.items()}
        self.prices = prices
        self._stand_ins, self._alike = self._asked

    def _named(self, job_class: str, beside: str = "") -> str:
        """Class of the last answer that stands for a class, not for its neighbour; the class itself if none does."""
        names = self._stand_ins.get(job_class) or self._alike.get(self.solos.get(job_class), ())
        if job_class in names or not names:
            return job_class
        return next((each for each in names if each != beside), names[0])

    @property
    def idle_w(self) -> float:
        """Power (W) of a device on which no job works."""
        return self._watts[1]

    def power_w(self, job_class: str) -> float:
        """Power (W) of a device on which one job of this class works alone."""
        solo = self.solos.get(job_class)
        return self._watts[0] if solo is None or solo.power_w is None else solo.power_w

    def price(self, job_class: str) -> float:
        """Worth (J) of a second of the class's work alone. Without a price it is the energy that the second costs."""
        price = self.prices.get(self._named(job_class))
        return self.power_w(job_class) if price is None else price

    def forecast(self, classes: Sequence[str]) -> ColocationForecast:
        """Forecast for co-located jobs of these classes.

        The delays by the single neighbours add up, unless these very classes were measured together. The power above
        idle is proportional to the speed. On processors (`FirstGuess.shares_time`) the factor is that measured with
        these classes: threads that wait for the neighbour's sleep, or spin. Before it is measured, jobs that want more
        than all the time of the device use all of it.
        """
        if len(classes) > _PAIR and (measured := self._larger.get(tuple(sorted(classes)))) is not None:
            order = sorted(range(len(classes)), key=classes.__getitem__)
            speeds = [speed for _, speed in sorted(zip(order, measured, strict=True))]
            return ColocationForecast(
                tuple(speeds), tuple(MEASURED_ERROR * each for each in speeds), self._drawn_w(classes, speeds)
            )
        speeds, errors = [], []
        for place, one in enumerate(classes):
            delay, spread = 0.0, 0.0
            for other in (*classes[:place], *classes[place + 1 :]):
                more, variance = self._delays.get((one, other)) or self._between(one, other)
                delay += more
                spread += variance
            speed = 1.0 / (1.0 + delay)
            speeds.append(speed)
            errors.append(speed * speed * spread**0.5)
        return ColocationForecast(tuple(speeds), tuple(errors), self._drawn_w(classes, speeds))

    def hoped(
        self, classes: Sequence[str], expected: ColocationForecast, hope: float, in_its_time: bool = True
    ) -> ColocationForecast:
        """Forecast in which each job is `hope` standard deviations faster than expected, but not faster than alone.

        Args:
            classes: Classes of the jobs.
            expected: Forecast for them.
            hope: Standard deviations.
            in_its_time: Whether jobs that share the time of their device are not hoped to use more than all of it.
        """
        speeds = [
            max(speed, min(1.0, speed + hope * error))
            for speed, error in zip(expected.speeds, expected.errors, strict=True)
        ]
        if in_its_time and self.guess.shares_time:
            used = sum([speed * self._busy(one, 0.0) for one, speed in zip(classes, speeds, strict=True)])
            if used > 1.0:
                speeds = [max(least, speed / used) for least, speed in zip(expected.speeds, speeds, strict=True)]
        return ColocationForecast(tuple(speeds), expected.errors, self._drawn_w(classes, speeds))

    def _between(self, one: str, other: str) -> tuple[float, float]:
        """Delay of a class by a neighbour, of which the adviser was not asked by name, and its variance."""
        first = self._named(one, other)
        second = first if one == other else self._named(other, first)
        return self._delays.get((first, second)) or self._guessed(one, other)

    def _guessed(self, one: str, other: str) -> tuple[float, float]:
        """Delay of a class by a neighbour that the adviser has not been asked about, and its variance."""
        busy = [solo.busy if (solo := self.solos.get(each)) is not None else None for each in (one, other)]
        speed = self.guess.speed(*busy)
        return _delay(speed, 0.5 * speed)

    def _as_measured(self, seen: Sequence[ColocationMeasurement]) -> dict[tuple[str, ...], float]:
        """For sorted classes that were measured together: power above idle / that in proportion to the speeds."""
        found: dict[tuple[str, ...], list[float]] = {}
        for each in seen:
            expected_w = self._active_w(each.classes, each.speeds)
            if each.power_w is not None and expected_w > 0.0:
                factor = min(_MOST_FACTOR, max(1 / _MOST_FACTOR, (each.power_w - self.idle_w) / expected_w))
                found.setdefault(tuple(sorted(each.classes)), []).append(factor)
        return {classes: sum(factors) / len(factors) for classes, factors in found.items()}

    def _active_w(self, classes: Sequence[str], speeds: Sequence[float]) -> float:
        """Power (W) above idle in proportion to the speeds."""
        idle_w = self.idle_w
        return sum([speed * max(0.0, self.power_w(one) - idle_w) for one, speed in zip(classes, speeds, strict=True)])

    def _drawn_w(self, classes: Sequence[str], speeds: Sequence[float]) -> float:
        if self._drawn and (factor := self._drawn.get(tuple(sorted(classes)))) is not None:
            return self.idle_w + factor * self._active_w(classes, speeds)
        if self.guess.shares_time and (wanted := sum([self._busy(one, 1.0) for one in classes])) > 1.0:
            return self.idle_w + self._active_w(classes, [1.0] * len(classes)) / wanted
        return self.idle_w + self._active_w(classes, speeds)

    def _busy(self, job_class: str, unknown: float) -> float:
        """Part of the device's time that a class uses alone."""
        solo = self.solos.get(job_class)
        return unknown if solo is None or solo.busy is None else solo.busy


def _delay(speed: float, error: float) -> tuple[float, float]:
    """Time (s) that a neighbour adds to a second of work, and the variance of that time."""
    return 1.0 / speed - 1.0, (error / (speed * speed)) ** 2


_MOST_FACTOR = 4.0
"""Largest factor, and one over the least, between power as it was measured and as it was expected."""

_PAIR = 2
