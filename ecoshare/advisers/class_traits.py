"""Knowledge of job classes alone, in the numbers that the interference model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ecoshare.core.placement.colocation_estimates import FirstGuess

Array = NDArray[np.float64]

RARELY = 0.25
"""Least g of a pair. Jobs that hardly use the device still share what no profile shows: processors, memory, disk."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Knowledge of a class alone.

    Attributes:
        family: Script of the class. Classes of one script behave alike. Empty if the class is like no other.
        numbers: Features by name, such as `busy`. Unknown features are left out.
    """

    family: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


def expected_speeds(known: Sequence[Traits], guess: FirstGuess) -> Array:  # (n_classes, n_classes)
    """Relative speed of each class beside each other one before any measurement."""
    busy = [None if np.isnan(each) else float(each) for each in _busy(known)]
    return np.array([[guess.speed(one, other) for other in busy] for one in busy])


def at_once(known: Sequence[Traits]) -> Array:  # (n_classes, n_classes)
    """How often both classes of a pair want the device at once: g of the model, in [`RARELY`, 1]; 1 if unknown.

    A job can delay another one only while both want the device: for the product of both busy parts if the jobs are
    independent, and for the lesser part if they are in step. The geometric mean is larger than both, to be cautious.
    """
    busy = _busy(known)
    both = np.sqrt(busy[:, None] * busy[None])
    return np.where(np.isfinite(both), np.maximum(both, RARELY), 1.0)


def _busy(known: Sequence[Traits]) -> Array:  # (n_classes,), NaN where it is unknown
    return np.clip([each.numbers.get("busy", np.nan) for each in known], 0.0, 1.0)


def distances(known: Sequence[Traits]) -> Array:  # (n_classes, n_classes)
    """Mean squared distances between standardised numbers. An unknown number counts as the mean of the known ones."""
    total, used = np.zeros((len(known), len(known))), 0
    for name in sorted({name for each in known for name in each.numbers}):
        column = np.array([each.numbers.get(name, np.nan) for each in known], dtype=np.float64)
        there = column[np.isfinite(column)]
        size = float(np.abs(there).max(initial=0.0))
        if not size:
            continue
        column, there = column / size, there / size
        spread = float(there.std())
        if spread < 1e-9:
            continue
        column = np.where(np.isfinite(column), (column - there.mean()) / spread, 0.0)
        total += (column[:, None] - column[None]) ** 2
        used += 1
    # The mean and not the sum: length scales hold for any count of numbers.
    return total / max(1, used)
