"""Joules, and where they come from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

MEASURED = "measured"
MODELLED = "modelled"
ATTRIBUTED = "attributed"
"""Sources of joules. Joules of a device are measured by a counter, or modelled; a job's share is attributed."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules over an interval.

    Attributes:
        value_j: Joules spent in the interval.
        standard_error_j: Standard error (J) from the time between updates of the counter, and from the part of it in
            which the counter does not look. The counter's calibration error is not included.
    """

    value_j: float
    standard_error_j: float


class Counter(Protocol):
    """Counter of joules: how coarse it is in time."""

    @property
    def period_s(self) -> float:
        """Time (s) between its updates; 0 if every reading is new."""
        ...

    @property
    def looks(self) -> float:
        """Part of each period in which it looks at the power, and takes the rest for the same: 0 to 1."""
        ...


_SWING = 0.12
"""Standard deviation of the power within a period / power, where a counter does not look all the time.

Twice the standard error that follows from it covers 95 % of random windows of square waves with iterations of half a
period to two periods, and more of all others (`tests/devices/test_counter_meter.py`). Iterations in step with the
counter are not covered: each period then shows it the same part of an iteration.
"""


def counted(value_j: float, wall_s: float, counter: Counter, stretches: int = 1) -> Energy:
    """Joules that a counter has counted, with their standard error.

    A reading shows the counter's last update. The age of that update is uniformly distributed over one period. So each
    end of an interval has a standard deviation of period x power / sqrt(12). The part of each period that a counter
    misses differs from period to period.

    Args:
        value_j: Joules (J).
        wall_s: Time (s) in which they were spent.
        counter: The counter.
        stretches: Number of intervals that the time consists of.
    """
    if wall_s <= 0.0:
        return Energy(value_j, 0.0)
    ends = counter.period_s / wall_s * math.sqrt(stretches / 6)
    unseen = _SWING * math.sqrt((1.0 - counter.looks) * counter.period_s / wall_s)
    return Energy(value_j, value_j * math.hypot(ends, unseen))


def relative_energy(power_w: float, work: Iterable[tuple[float, float]]) -> float | None:
    """E: joules spent per joule that the same work costs alone. Below 1 saves energy; None if no work was done.

    Args:
        power_w: Mean power (W) of the device.
        work: For each job: joules that one iteration costs alone, and iterations per second.
    """
    alone_w = math.fsum(iteration_j * rate for iteration_j, rate in work)
    return power_w / alone_w if alone_w > 0.0 else None
