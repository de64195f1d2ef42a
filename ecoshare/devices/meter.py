"""What an energy meter is: one number that grows, and how far it can be trusted.

::

    counter   ┐         ┌─────────┐         ┌──     a meter shows the value of its last update: within a period
              └─────────┘         └─────────┘       of `period_s` nothing is known
    reads       ▲                     ▲
                └─ an interval ───────┘             shorter than a period: no joules; else ± one update at each end
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ecoshare.errors import UnfitEnvironment

MEASURED = "measured"
MODELLED = "modelled"
ATTRIBUTED = "attributed"
"""How joules are known. A device's are measured by a counter or modelled; a job's share of them is attributed."""


class MeterFault(UnfitEnvironment):
    """A meter gave no number, or one that cannot be right. What it would have covered is not known."""


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """What a meter measures, and how.

    Attributes:
        name: Such as `nvml` or `rapl`.
        source: `measured` or `modelled`.
        scope: `gpu` or `cpu`: what the joules are spent by.
        about: One line for the user.
        period_s: Between updates of the counter, found out by watching it; 0 where every reading is new.
    """

    name: str
    source: str
    scope: str
    about: str
    period_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A meter's state.

    Attributes:
        at_s: When it was read, on the monotonic clock.
        energy_j: Joules since an origin of the meter's own; never less than before.
    """

    at_s: float
    energy_j: float


class Meter(Protocol):
    """Counts a device's joules."""

    @property
    def info(self) -> MeterInfo:
        """What it measures."""
        ...

    def read(self) -> Reading:
        """The joules so far.

        Raises:
            MeterFault: There is no number. The meter may answer again later.
        """
        ...


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules over an interval.

    Attributes:
        standard_error_j: Of the counter's coarseness in time alone; a counter's own calibration is not in it.
    """

    value_j: float
    standard_error_j: float


def between(first: Reading, last: Reading, period_s: float) -> Energy:
    """What was spent from one reading to another.

    A reading shows the counter's last update, which is on average half a period old and evenly distributed over it; so
    each end is off by a standard deviation of period x power / sqrt(12).

    Raises:
        MeterFault: The interval is shorter than the counter's period, or the counter went back.
    """
    wall_s = last.at_s - first.at_s
    value_j = last.energy_j - first.energy_j
    if wall_s <= period_s:
        raise MeterFault(f"{wall_s:.3f} s is shorter than the {period_s:.3f} s between updates of the energy counter")
    if value_j < 0:
        raise MeterFault(f"the energy counter went back by {-value_j:.1f} J")
    return Energy(value_j, value_j / wall_s * period_s / math.sqrt(6))
