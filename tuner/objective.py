"""Objectives and limits as functions of the observables.

An objective maps the observables at a setting and at the default to a positive number; smaller is better. The
observables are tensors that broadcast: (n_samples, n_settings) at the settings, (n_samples, 1) at the default.
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
    """Upper bound of an observable, as a multiple of its value at the default setting.

    Attributes:
        most: Largest allowed multiple, such as 1.1.
    """

    observable: str
    most: float


def energy(alone_w: Mapping[str, float]) -> Objective:
    """Relative energy: joules spent / joules that the same work costs at the default setting.

    The objective is `power(x) / sum_j (p_j t_j(default) / t_j(x))`, with p_j the watts of job j alone. For one job this
    is the ratio: energy per iteration / energy per iteration at the default.

    Args:
        alone_w: Power (W) of each job alone at the default setting, by the name of the job's time.
    """

    def spent(now: Observed, default: Observed) -> Tensor:
        work = sum((watts * default[name] / now[name] for name, watts in alone_w.items()), start=now[POWER] * 0.0)
        return now[POWER] / work

    return spent


def time(names: tuple[str, ...]) -> Objective:
    """Relative time: mean over the jobs of the ratio: time / time at the default setting."""

    def mean(now: Observed, default: Observed) -> Tensor:
        ratios = [now[name] / default[name] for name in names]
        return sum(ratios[1:], start=ratios[0]) / len(ratios)

    return mean


def edp(alone_w: Mapping[str, float]) -> Objective:
    """Energy-delay product: `energy` times `time`, both relative to the default setting."""
    spent, slow = energy(alone_w), time(tuple(alone_w))
    return lambda now, default: spent(now, default) * slow(now, default)
