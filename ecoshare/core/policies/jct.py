"""JCT: the least mean job completion time."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import ObjectivePolicy, remaining_s
from ecoshare.core.records import Job

LEAST_S = 1.0
"""Lower bound (s) of the time left of a job in its worth: no forecast is exact to the second."""


class JctPolicy(ObjectivePolicy):
    """Policy that minimises the mean JCT: the most jobs ended per second; shortest remaining time first for groups."""

    name: ClassVar[str] = "jct"

    def spent(self, forecast: ColocationForecast) -> float:
        """One: each second costs the same."""
        return 1.0

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Part of the remaining job that one second of work does."""
        return 1.0 / max(LEAST_S, remaining_s(job))
