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
TURN = "turn_s"
"""Time (s) for which a service works for one request: time of a batch / requests in the batch."""
P99 = "p99_s"
"""99th percentile of the latency (s) of a service's requests."""


@dataclass(frozen=True)
class Limit:
    """Upper bound of an observable.

    Attributes:
        most: Largest allowed value: a multiple of the value at the default setting, such as 1.1, or a number in the
            unit of the observable.
        is_absolute: Whether `most` is in the unit of the observable.
    """

    observable: str
    most: float
    is_absolute: bool = False


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


def service_energy(rate_per_s: float, request_j: float, training_j: Mapping[str, tuple[float, float]]) -> Objective:
    """Relative energy of a service and the jobs that train in its lane: joules spent / joules of the same work alone.

    The objective is `power / (rate request_j + sum_j share_j (1 - rate turn) iteration_j / time_j)`. Jobs train while
    the service does not work. For a service alone it is joules a request, over `request_j`.

    Args:
        rate_per_s: Requests a second.
        request_j: Energy (J) of a request alone at the default setting.
        training_j: Energy (J) of an iteration alone at the default setting, and share of the time that the service
            leaves, by the name of the job's time.
    """

    def spent(now: Observed, _default: Observed) -> Tensor:
        left = (1.0 - rate_per_s * now[TURN]).clamp_min(0.0)
        trained_w = [share * left * joules / now[name] for name, (joules, share) in training_j.items()]
        return now[POWER] / sum(trained_w, start=now[POWER] * 0.0 + rate_per_s * request_j)

    return spent
