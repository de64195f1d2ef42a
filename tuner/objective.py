"""What is wanted, as functions of what is measured.

An objective takes what is observed at a setting and at the default, and gives a positive number; smaller is better. Its
arguments are arrays that broadcast: (n_samples, n_settings) and (n_samples, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

Observed = Mapping[str, Tensor]
"""Positive values by the name of the observable."""

Objective = Callable[[Observed, Observed], Tensor]

POWER = "power_w"


@dataclass(frozen=True)
class Limit:
    """An observable must stay within a multiple of its value at the default setting.

    Attributes:
        most: The multiple, such as 1.1.
    """

    observable: str
    most: float

    def excess(self, now: Observed, default: Observed) -> Tensor:
        """Logarithm of the ratio to the limit: above 0 if the limit is broken."""
        return (now[self.observable] / default[self.observable] / self.most).log()


def energy(alone_w: Mapping[str, float]) -> Objective:
    """Joules spent per joule that the same work costs at the default setting.

    `power(x) / sum_j p_j t_j(default) / t_j(x)`, with p_j the watts of job j alone. For one job it is its energy per
    iteration over that at the default.

    Args:
        alone_w: Power (W) of each job alone at the default setting, by the name of the job's time.
    """

    def spent(now: Observed, default: Observed) -> Tensor:
        work = sum((watts * default[name] / now[name] for name, watts in alone_w.items()), start=now[POWER] * 0.0)
        return now[POWER] / work

    return spent


def time(names: tuple[str, ...]) -> Objective:
    """Mean time of the jobs, each over its own at the default setting."""

    def mean(now: Observed, default: Observed) -> Tensor:
        ratios = [now[name] / default[name] for name in names]
        return sum(ratios[1:], start=ratios[0]) / len(ratios)

    return mean


def edp(alone_w: Mapping[str, float]) -> Objective:
    """Energy times delay: `energy` times the mean time."""
    spent, slow = energy(alone_w), time(tuple(alone_w))
    return lambda now, default: spent(now, default) * slow(now, default)
