"""Samplers for grids and random draws. A trial follows from its number alone, so they keep no state."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Choice:
    """A finite set of words; a trial gets one of them."""

    words: tuple[str, ...]

    def draw(self, dice: random.Random) -> str:
        """One word, drawn with equal probability."""
        return dice.choice(self.words)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`, both included.

    Attributes:
        log: Draws the logarithm uniformly: 1e-4 to 1e-3 is as likely as 1e-3 to 1e-2.
        whole: Draws whole numbers only.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, dice: random.Random) -> str:
        """A random number of the range, as text."""
        if not self.whole:
            if self.log:
                return self.text(math.exp(dice.uniform(math.log(self.low), math.log(self.high))))
            return self.text(dice.uniform(self.low, self.high))
        if not self.log:
            return self.text(dice.randint(int(self.low), int(self.high)))
        # Each whole number n is as likely as the interval from n - 0.5 to n + 0.5.
        drawn = math.exp(dice.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return self.text(round(drawn))

    def text(self, value: float) -> str:
        """Text that a script gets for `value`: clipped to the bounds, with every significant digit."""
        bounded = min(max(value, self.low), self.high)
        return str(int(bounded)) if self.whole else repr(float(bounded))


Dimension = Choice | Range
Space = Mapping[str, Dimension]
Values = tuple[tuple[str, str], ...]
"""Pairs of name and text, in the order of the space."""


class TrialSampler(Protocol):
    """Chooses the values of each trial of a sweep. Not thread-safe."""

    def draw(self, number: int) -> Values | None:
        """Values of the trial with this number, counted from 0; None if there is no such trial."""
        ...

    def reported(self, number: int, step: int, value: float) -> str:
        """Take the value that a trial reported; return why the sampler ends the trial, or an empty text."""
        ...

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        """Take the last value that a finished trial reported; None if it reported none, or failed."""
        ...


class _Deaf:
    """Ignores the results of its trials."""

    def reported(self, number: int, step: int, value: float) -> str:
        """Empty: the trial always goes on."""
        return ""

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Grid(_Deaf):
    """Every combination of the words under each name; the last name varies fastest.

    Attributes:
        most: Most trials; None for all combinations.
    """

    space: Mapping[str, Choice]
    most: int | None = None

    def __len__(self) -> int:
        whole = math.prod(len(choice.words) for choice in self.space.values())
        return whole if self.most is None else min(whole, self.most)

    def draw(self, number: int) -> Values | None:
        if number >= len(self):
            return None
        values: list[tuple[str, str]] = []
        for name, choice in reversed(list(self.space.items())):
            number, place = divmod(number, len(choice.words))
            values.append((name, choice.words[place]))
        return tuple(reversed(values))


@dataclass(frozen=True, slots=True)
class Random(_Deaf):
    """Independent random draws; trial n depends on `seed` and n only, not on earlier draws."""

    space: Space
    trials: int
    seed: int = 0

    def draw(self, number: int) -> Values | None:
        if number >= self.trials:
            return None
        dice = random.Random(f"{self.seed}/{number}")
        return tuple((name, dimension.draw(dice)) for name, dimension in self.space.items())
