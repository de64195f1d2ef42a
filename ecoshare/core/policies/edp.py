"""EDP: the least product of energy and time for the same work."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import ObjectivePolicy


class EdpPolicy(ObjectivePolicy):
    """Policy that minimises the product of energy and time (EDP) for the same work."""

    name: ClassVar[str] = "edp"

    def spent(self, forecast: ColocationForecast) -> float:
        """Power (W) / sum of the speeds: power multiplied by the time that one second of work takes."""
        return forecast.power_w / sum(forecast.speeds)
