"""Joules, and where they come from."""

from __future__ import annotations

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
