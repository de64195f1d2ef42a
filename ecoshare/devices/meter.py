"""Protocol of energy meters: one number that grows, and how far it can be trusted.

::

    counter   ┐         ┌─────────┐         ┌──     a meter shows the value of its last update: within a period
              └─────────┘         └─────────┘       of `period_s` nothing is known
    reads       ▲                     ▲
                └─ an interval ───────┘             shorter than a period: no joules; else ± one update at each end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ecoshare.errors import UnfitEnvironment
from ecoshare.values.joules import Counter, Energy, counted


class MeterFault(UnfitEnvironment):
    """A meter gave no number, or an impossible one. The joules of that interval are unknown."""


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """Description of a meter.

    Attributes:
        name: Short name, such as `nvml` or `rapl`.
        source: `measured` or `modelled`.
        scope: Device that spends the joules: `gpu` or `cpu`.
        about: One line for the user.
        period_s: Time (s) between updates of the counter; 0 if every reading is new.
        looks: Part of each period in which the counter looks; see `Counter`.
    """

    name: str
    source: str
    scope: str
    about: str
    period_s: float
    looks: float = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """State of a meter at one moment.

    Attributes:
        at_s: Time of the reading (s, monotonic clock).
        energy_j: Joules since an origin that the meter chooses; never less than in the reading before.
    """

    at_s: float
    energy_j: float


class Meter(Protocol):
    """Counts the joules of a device."""

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        ...

    def read(self) -> Reading:
        """Joules so far.

        Raises:
            MeterFault: The meter gives no number. It may answer again later.
        """
        ...


def between(first: Reading, last: Reading, counter: Counter) -> Energy:
    """Joules spent between two readings of a counter; see `counted` for their error.

    Raises:
        MeterFault: The interval is shorter than the counter's period, or the counter went back.
    """
    wall_s = last.at_s - first.at_s
    value_j = last.energy_j - first.energy_j
    if wall_s <= counter.period_s:
        raise MeterFault(
            f"{wall_s:.3f} s is shorter than the {counter.period_s:.3f} s between updates of the energy counter"
        )
    if value_j < 0:
        raise MeterFault(f"the energy counter went back by {-value_j:.1f} J")
    return counted(value_j, wall_s, counter)
