"""Joules, and where they come from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MEASURED = "measured"
MODELLED = "modelled"
ATTRIBUTED = "attributed"
"""Sources of joules. Joules of a device are measured by a counter, or modelled; a job's share is attributed."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules over an interval.

    Attributes:
        value_j: Joules spent in the interval.
        standard_error_j: Standard error (J) from the time between updates of the counter. The counter's calibration
            error is not included.
    """

    value_j: float
    standard_error_j: float


def relative_energy(power_w: float, work: Iterable[tuple[float, float]]) -> float | None:
    """E: joules spent per joule that the same work costs alone. Below 1 saves energy; None if no work was done.

    Args:
        power_w: Mean power (W) of the device.
        work: For each job: joules that one iteration costs alone, and iterations per second.
    """
    alone_w = math.fsum(iteration_j * rate for iteration_j, rate in work)
    return power_w / alone_w if alone_w > 0.0 else None
