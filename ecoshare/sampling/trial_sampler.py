"""Samplers: grids and random draws, which know a trial by its number alone, and so need no memory."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ecoshare.sampling.sweep_space import Choice, Space, Values


class TrialSampler(Protocol):
    """Says what the trials of a sweep are. Not for use by two threads at once."""

    def draw(self, number: int) -> Values | None:
        """The values of the trial with this number, counted from 0; None where there is none."""
        ...

    def reported(self, number: int, step: int, value: float) -> str:
        """A trial has reported a value: why its own rule ends it here; empty where it goes on or there is no rule."""
        ...

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        """A trial is over, with the last value that it reported; None where it reported none, or failed."""
        ...


class _Deaf:
    """Learns nothing from its trials."""

    def reported(self, number: int, step: int, value: float) -> str:
        """It goes on."""
        return ""

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Grid(_Deaf):
    """Every combination of some words, the last name's words changing fastest."""

    space: Mapping[str, Choice]
    most: int | None = None

    def __len__(self) -> int:
        whole = math.prod(len(choice.words) for choice in self.space.values())
        return whole if self.most is None else min(whole, self.most)

    def draw(self, number: int) -> Values | None:
        """See `TrialSampler`."""
        if number >= len(self):
            return None
        values: list[tuple[str, str]] = []
        for name, choice in reversed(list(self.space.items())):
            number, place = divmod(number, len(choice.words))
            values.append((name, choice.words[place]))
        return tuple(reversed(values))


@dataclass(frozen=True, slots=True)
class Random(_Deaf):
    """Independent draws; trial n is the same for the same seed, whatever was drawn before."""

    space: Space
    trials: int
    seed: int = 0

    def draw(self, number: int) -> Values | None:
        """See `TrialSampler`."""
        if number >= self.trials:
            return None
        dice = random.Random(f"{self.seed}/{number}")
        return tuple((name, dimension.draw(dice)) for name, dimension in self.space.items())
