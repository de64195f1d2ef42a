"""Which trials of a sweep end early, by what they report.

::

    asha, reduction 3, grace 1                     median
    step 1    ████ ████ ████ ████ ████ ████        step 4: a trial's best so far is worse than half of
    step 3    ████████████ ██████████               the means that those which are through had by then
    step 9    ████████████████████████

    halving, reduction 3, grace 1
    step 1    ████ ████ ████ ████ ████ ████        all pause there; when the last is there, two of the six go on
    step 3    ████████████ ████████████

A rule is told values of which the smaller is the better; one that is no number counts as the worst.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ecoshare.common.plural import counted
from ecoshare.core.events import EarlierTrial, StoppingSpec


class StoppingRule(Protocol):
    """Says which trials end early."""

    def told(self, trial: str, step: int, value: float) -> str:
        """A trial has reported a value at a step, counted from 1: why it is to end now, or nothing where it goes on."""
        ...

    def ended(self, trial: str, completed: bool) -> None:
        """A trial reports no more; whether it did all that it was to do."""
        ...


def rule(halting: StoppingSpec, past: Sequence[EarlierTrial] = ()) -> StoppingRule:
    """The rule of a sweep, told again what its trials have reported in earlier sessions."""
    made: StoppingRule = {"asha": Asha, "halving": Halving, "median": Median}[halting.rule](halting)
    for trial in past:
        for step, value in enumerate(trial.values, start=1):
            made.told(trial.name, step, value)
        made.ended(trial.name, trial.completed)
    return made


@dataclass(slots=True)
class Asha:
    """Asynchronous successive halving, as it stops trials.

    There are rungs at `grace`, `grace * reduction`, `grace * reduction**2`, ... steps. Who reaches one goes on where it
    is among the best `1 / reduction` of all that have reached it so far; while these are fewer than `reduction`, where
    it is the best. Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, in the
    variant that stops instead of promoting, so that nobody is paused.
    """

    halting: StoppingSpec
    _rungs: list[list[float]] = field(default_factory=list)
    _passed: dict[str, int] = field(default_factory=dict)

    def told(self, trial: str, step: int, value: float) -> str:
        """See `StoppingRule`."""
        reached = _reached(self.halting, self._passed, trial, step)
        if reached is None:
            return ""
        rung, at_step = reached
        if rung == len(self._rungs):
            self._rungs.append([])
        values = self._rungs[rung]
        insort(values, value := _ordered(value))
        good = max(1, len(values) // self.halting.reduction)
        place = bisect_left(values, value)
        if place < good:
            return ""
        return f"place {place + 1} of the {len(values)} that reached step {at_step}, of whom {good} go on (asha)"

    def ended(self, trial: str, completed: bool) -> None:
        """See `StoppingRule`."""
        self._passed.pop(trial, None)


@dataclass(slots=True)
class Halving:
    """Successive halving with rungs at which all wait for each other.

    The rungs are those of `Asha`. Who reaches one pauses there; when nobody is on the way any more, the best
    `1 / reduction` go on, at least one, and the others end. Source: Jamieson and Talwalkar, "Non-stochastic Best Arm
    Identification and Hyperparameter Optimization", AISTATS 2016.

    Attributes:
        waiting: Who pauses, with the value that counts.
    """

    halting: StoppingSpec
    waiting: dict[str, float] = field(default_factory=dict)
    _passed: dict[str, int] = field(default_factory=dict)

    def told(self, trial: str, step: int, value: float) -> str:
        """See `StoppingRule`; why it pauses, in place of why it ends."""
        reached = _reached(self.halting, self._passed, trial, step)
        if reached is None:
            return ""
        self.waiting[trial] = _ordered(value)
        return f"pauses at step {reached[1]} until all others are there (halving)"

    def decide(self) -> dict[str, str]:
        """Of each that pauses: why it ends, or nothing where it goes on. Of equal ones who was there first does."""
        order = sorted(self.waiting, key=self.waiting.__getitem__)
        good = max(1, len(order) // self.halting.reduction)
        self.waiting.clear()
        words = f"of the {len(order)} of its rung, of whom {good} go on (halving)"
        return {trial: f"place {place} {words}" if place > good else "" for place, trial in enumerate(order, start=1)}

    def ended(self, trial: str, completed: bool) -> None:
        """See `StoppingRule`."""
        self._passed.pop(trial, None)
        self.waiting.pop(trial, None)

    def next_step(self, trial: str) -> int | None:
        """Its next rung, where it will pause; None where there is none before its end."""
        return _rung(self.halting, self._passed.get(trial, 0))


LEAST_COMPLETED = 5
"""Trials that must be through before others are compared with them."""


@dataclass(slots=True)
class Median:
    """The median stopping rule.

    A trial ends where its best value up to a step is worse than the median of what the trials that are through had as
    the mean of their values up to that step. Source: Golovin et al., "Google Vizier", KDD 2017, 3.2.2.
    """

    halting: StoppingSpec
    _means: list[list[float]] = field(default_factory=list)
    """By step, of the trials that are through, sorted."""
    _values: dict[str, list[float]] = field(default_factory=dict)

    def told(self, trial: str, step: int, value: float) -> str:
        """See `StoppingRule`."""
        values = self._values.setdefault(trial, [])
        if step <= len(values):  # it was started again
            del values[step - 1 :]
        values.append(_ordered(value))
        means = self._means[step - 1] if step <= len(self._means) else []
        if step < self.halting.grace or len(means) < LEAST_COMPLETED:
            return ""
        median = (means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2
        if min(values) <= median:
            return ""
        through = f"{counted(len(means), 'trial')} that {'is' if len(means) == 1 else 'are'} through"
        return f"worse at step {step} than the median of {through} (median)"

    def ended(self, trial: str, completed: bool) -> None:
        """See `StoppingRule`."""
        values = self._values.pop(trial, [])
        if not completed:
            return
        total = 0.0
        for step, value in enumerate(values, start=1):
            total += value
            if step > len(self._means):
                self._means.append([])
            insort(self._means[step - 1], total / step)


def _rung(halting: StoppingSpec, number: int) -> int | None:
    """Step of a rung, counted from 0; None where a trial is over by then."""
    step = halting.grace * halting.reduction**number
    return None if 0 < halting.steps <= step else step


def _reached(halting: StoppingSpec, passed: dict[str, int], trial: str, step: int) -> tuple[int, int] | None:
    """The rung that the trial reaches with this step, and passes, and the rung's step; None where it reaches none."""
    rung = passed.get(trial, 0)
    at_step = _rung(halting, rung)
    if at_step is None or step < at_step:
        return None
    passed[trial] = rung + 1
    return rung, at_step


def _ordered(value: float) -> float:
    return math.inf if math.isnan(value) else value
