"""Energy: the fewest joules for all the work."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import ObjectivePolicy


class EnergyPolicy(ObjectivePolicy):
    """Policy that spends the fewest joules on all the work.

    If the worth of the work is its energy alone, the cost of a group is E of `knowledge/advisers/setting_search.py`:
    joules spent per joule that the same work costs alone. With prices from the fluid linear program
    (`knowledge/advisers/interference_adviser.py`), a job waits for a good neighbour instead of joining the first one.
    """

    name: ClassVar[str] = "energy"

    def spent(self, forecast: ColocationForecast) -> float:
        """Power (W) of the device."""
        return forecast.power_w
