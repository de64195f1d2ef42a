"""Makespan: the earliest end of the last job."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import ObjectivePolicy, remaining_s
from ecoshare.core.records import Job, Key


class MakespanPolicy(ObjectivePolicy):
    """Policy that minimises the end of the last job: the most work done per second, the longest jobs first."""

    name: ClassVar[str] = "makespan"

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time, the longest first."""
        return (-remaining_s(job),)

    def spent(self, forecast: ColocationForecast) -> float:
        """One: each second costs the same."""
        return 1.0

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """One: all work is worth the same."""
        return 1.0
