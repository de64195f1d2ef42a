"""What is expected of jobs that run beside each other on a device: how fast each is, and what the device draws.

An adviser makes it, of what is known of each class alone and of the packings that were measured; the core only adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ecoshare.core.events import PairSpeed, Solo

BESIDE = 0.68
"""Speed of a job beside another of which nothing is known, over that alone: half of the median combined speed of 1.37
of all pairs that Gavel measured on a V100 (Narayanan et al., OSDI 2020)."""

IDLE_SHARE = 0.16
"""Of what a device draws with a job alone, what an idle one does, where nothing is known: 0.12 over 0.75 of its limit,
as in `ecoshare/simulate/gpus.py`."""

UNKNOWN_W = 1.0
"""Watts of a class alone where those of no class are known: only their ratios matter then."""


@dataclass(frozen=True, slots=True)
class ColocationForecast:
    """A group of jobs on a device, each in a lane of its own.

    Attributes:
        speeds: Of each, over that alone at the default setting.
        errors: Their standard deviations.
        power_w: Of the whole device.
    """

    speeds: tuple[float, ...]
    errors: tuple[float, ...]
    power_w: float


@dataclass(slots=True)
class ColocationEstimates:
    """What is known by now.

    Attributes:
        solos: By class, alone.
        pairs: By class and neighbour.
        prices: By class, the joules that a second of its work alone is worth.
        version: Changes whenever more is known.
    """

    solos: dict[str, Solo] = field(default_factory=dict)
    pairs: dict[tuple[str, str], PairSpeed] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    version: int = 0
    _delays: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _watts: tuple[float, float] = (UNKNOWN_W, IDLE_SHARE * UNKNOWN_W)

    def learn(self, job_class: str, solo: Solo) -> None:
        """A class was measured alone."""
        self.version += 1
        self.solos[job_class] = solo
        powers = [each.power_w for each in self.solos.values() if each.power_w is not None]
        idles = [each.idle_w for each in self.solos.values() if each.idle_w is not None]
        power_w = sum(powers) / len(powers) if powers else UNKNOWN_W
        self._watts = power_w, min(idles, default=IDLE_SHARE * power_w)

    def foreseen(self, pairs: Iterable[PairSpeed], prices: dict[str, float]) -> None:
        """An adviser has answered."""
        self.version += 1
        self.pairs = {(each.one, each.other): each for each in pairs}
        self._delays = {pair: _delay(each.speed, each.error) for pair, each in self.pairs.items()}
        self.prices = prices

    @property
    def idle_w(self) -> float:
        """Of a device where nobody is at work."""
        return self._watts[1]

    def power_w(self, job_class: str) -> float:
        """Of a device where one job of this class is at work alone."""
        solo = self.solos.get(job_class)
        return self._watts[0] if solo is None or solo.power_w is None else solo.power_w

    def price(self, job_class: str) -> float:
        """Joules that a second of its work alone is worth: at most what it costs alone."""
        price = self.prices.get(job_class)
        return self.power_w(job_class) if price is None else price

    def forecast(self, classes: Sequence[str]) -> ColocationForecast:
        """What to expect of jobs of these classes beside each other.

        The delays that each neighbour alone would cause add up, and watts beyond idle go with the speed.
        """
        speeds, errors = [], []
        for place, one in enumerate(classes):
            delay, spread = 0.0, 0.0
            for other in (*classes[:place], *classes[place + 1 :]):
                more, variance = self._delays.get((one, other), _UNKNOWN)
                delay += more
                spread += variance
            speed = 1.0 / (1.0 + delay)
            speeds.append(speed)
            errors.append(speed * speed * spread**0.5)
        return ColocationForecast(tuple(speeds), tuple(errors), self._drawn_w(classes, speeds))

    def hoped(self, classes: Sequence[str], expected: ColocationForecast, hope: float) -> ColocationForecast:
        """The same where each is faster than expected by so many standard deviations, if not faster than alone."""
        pairs = zip(expected.speeds, expected.errors, strict=True)
        speeds = tuple(max(speed, min(1.0, speed + hope * error)) for speed, error in pairs)
        return ColocationForecast(speeds, expected.errors, self._drawn_w(classes, speeds))

    def _drawn_w(self, classes: Sequence[str], speeds: Sequence[float]) -> float:
        idle_w = self.idle_w
        active_w = (max(0.0, self.power_w(one) - idle_w) for one in classes)
        return idle_w + sum(speed * watts for speed, watts in zip(speeds, active_w, strict=True))


def _delay(speed: float, error: float) -> tuple[float, float]:
    """Time that a neighbour adds to a second of work, and its variance."""
    return 1.0 / speed - 1.0, (error / (speed * speed)) ** 2


_UNKNOWN = _delay(BESIDE, 0.5 * BESIDE)
