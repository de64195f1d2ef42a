"""Search space of a sweep: named choices and ranges, and the text in which a script gets each value."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass


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
