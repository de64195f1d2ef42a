"""What a sweep varies: choices and ranges, each under a name, and the text that a script is given of them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these words."""

    words: tuple[str, ...]

    def draw(self, dice: random.Random) -> str:
        """One of them, each as likely as any other."""
        return dice.choice(self.words)


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both included.

    Attributes:
        log: Its logarithm is drawn evenly, so that 1e-4 to 1e-3 is as likely as 1e-3 to 1e-2.
        whole: Whole numbers only.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, dice: random.Random) -> str:
        """A number of it, as text."""
        if not self.whole:
            if self.log:
                return self.text(math.exp(dice.uniform(math.log(self.low), math.log(self.high))))
            return self.text(dice.uniform(self.low, self.high))
        if not self.log:
            return self.text(dice.randint(int(self.low), int(self.high)))
        # Each whole number has the share of the interval around it.
        drawn = math.exp(dice.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return self.text(round(drawn))

    def text(self, value: float) -> str:
        """A number as a script is given it: every digit that counts, and within the bounds."""
        bounded = min(max(value, self.low), self.high)
        return str(int(bounded)) if self.whole else repr(float(bounded))


Dimension = Choice | Range
Space = Mapping[str, Dimension]
Values = tuple[tuple[str, str], ...]
"""Names and text, in the order of the space."""
