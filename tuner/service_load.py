"""Load of a service: the batches that requests form, and how long the slowest percent of them waits.

A service never waits for a batch to be filled. The requests that come while a batch is answered, and while a neighbour
ends an iteration, are the next batch::

    requests      ▼   ▼▼     ▼ ▼  ▼
    turn     ▏neighbour▏  batch ▏neighbour▏ batch
                                └ S(n) ──┘            n = rate (S(n) + N)

The mean batch n follows from the rate, the time S of a batch by its size, and the longest iteration N of a neighbour. A
largest batch above n is hardly ever reached, so it changes little. One below n cannot keep up with the rate.

The predicted latency is::

    p99 = ratio (N + S(n) + S(waiting))              waiting = max(n + 2.33 sqrt(D n) + 1, overflow)

It is the sum of at most one iteration of a neighbour, one batch ahead, and the own batch. The latter has the requests
that wait in all but 1 % of the cases: those that come in one cycle, or, near the limit, the queue of Kingman
("The single server queue in heavy traffic", 1961), `D ln(100) n / (2 (largest - n))` with n the requests of a cycle of
largest batches. D is the dispersion of the arrivals, 1 for a Poisson process: bursts wait longer, and the more so the
nearer the limit is. More requests than the largest batch take several batches. `ratio` is measured p99 / this formula,
with other variation of batches and arrivals in it. It is measured at the first setting and learned at the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Z99, _Z95 = 2.33, 1.645
_ROUNDS = 60
"""Rounds of the fixed point of the mean batch. It converges from below, and slowly only near the limit."""
_MOST_BATCHES = 20.0
"""Most batches that wait, for a service that cannot keep up. All more of them is as bad."""
_LEAST_SPARE = 0.02
"""Least part of the largest batch that is spare in the formula of the overflow."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ServiceLoad:
    """A service and its requests.

    Attributes:
        rate_per_s: Mean number of requests a second.
        idle_w: Power (W) of the device while neither the service nor a job runs.
        dispersion: Variance of the number of requests in an interval / mean number; 1 for a Poisson process.
    """

    rate_per_s: float
    idle_w: float = 0.0
    dispersion: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: The rate or the dispersion is not positive, or the power is negative.
        """
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s > 0.0):
            raise ValueError(f"a rate of {self.rate_per_s:g} requests a second: expected a positive number")
        if not (math.isfinite(self.idle_w) and self.idle_w >= 0.0):
            raise ValueError(f"{self.idle_w:g} W of an idle device: expected 0 or more")
        if not (math.isfinite(self.dispersion) and self.dispersion > 0.0):
            raise ValueError(f"a dispersion of {self.dispersion:g}: expected a positive number")


def dispersion(counts: Sequence[float]) -> float:
    """Dispersion of requests, from their numbers in intervals of one length: 1 unless the numbers say otherwise.

    The variance of few numbers is uncertain. It counts only if less than 5 % of Poisson processes show as large a one.
    """
    free = len(counts) - 1
    mean = sum(counts) / len(counts) if counts else 0.0
    if free < 1 or mean <= 0.0:
        return 1.0
    found = sum((each - mean) ** 2 for each in counts) / free / mean
    rare = (1.0 - 2.0 / (9.0 * free) + _Z95 * math.sqrt(2.0 / (9.0 * free))) ** 3  # Wilson and Hilferty, 1931
    return found if found > rare else 1.0


@dataclass(frozen=True)
class Served:
    """Service under load; arrays of one shape.

    Attributes:
        batch: Mean requests in a batch.
        turn_s: Time (s) of work for one request.
        batch_j: Energy (J) of a mean batch.
        latency_s: Predicted p99 (s) of the latency for a ratio of 1.
    """

    batch: Array
    turn_s: Array
    batch_j: Array
    latency_s: Array


def served(sizes: Array, batch_s: Array, watts: Array, iteration_s: Array | float, load: ServiceLoad) -> Served:
    """Service under load.

    Args:
        sizes: Batch sizes that may be used, in ascending order, (n_sizes,).
        batch_s: Time (s) of a full batch of each size, (..., n_sizes).
        watts: Power (W) of the device meanwhile, (..., n_sizes).
        iteration_s: Longest iteration (s) of a neighbour, (...); 0 without one.
        load: Requests of the service.
    """
    rate_per_s = load.rate_per_s
    most = float(sizes[-1])
    gathered = 1.0 + 0.5 * rate_per_s * iteration_s
    batch = np.broadcast_to(gathered, batch_s.shape[:-1])
    for _ in range(_ROUNDS):
        batch = np.clip(rate_per_s * _at(sizes, batch_s, batch), gathered, _MOST_BATCHES * most)
    together = np.minimum(batch, most)
    took_s = _at(sizes, batch_s, together)
    waiting = batch + _Z99 * np.sqrt(load.dispersion * batch) + 1.0
    in_cycle = rate_per_s * batch_s[..., -1]
    overflow = load.dispersion * math.log(100.0) * in_cycle / (2.0 * np.maximum(most - in_cycle, _LEAST_SPARE * most))
    queue_s = _at(sizes, batch_s, np.minimum(np.maximum(waiting, overflow), _MOST_BATCHES * most))
    return Served(together, took_s / together, _at(sizes, batch_s * watts, together), iteration_s + took_s + queue_s)


def _at(sizes: Array, values: Array, batch: Array) -> Array:
    """Values at a number of requests, (...), from those at sizes, (..., n): on lines between them.

    Fewer requests than the smallest size take as long as that; more than the largest are several batches.
    """
    several = np.maximum(1.0, batch / sizes[-1])
    inside = np.clip(batch, sizes[0], sizes[-1])
    upper = np.clip(np.searchsorted(sizes, inside), 1 if len(sizes) > 1 else 0, len(sizes) - 1)
    lower = np.maximum(upper - 1, 0)
    low, high = (np.take_along_axis(values, each[..., None], axis=-1)[..., 0] for each in (lower, upper))
    part = np.where(upper > lower, (inside - sizes[lower]) / np.maximum(sizes[upper] - sizes[lower], 1e-12), 0.0)
    found: Array = several * (low + part * (high - low))
    return found
