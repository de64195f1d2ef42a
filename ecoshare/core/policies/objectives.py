"""Policies that co-locate groups of jobs, each for an objective: the best group costs least for what it is worth."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import ObjectivePolicy, remaining_s
from ecoshare.core.records import Job, Key


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


class EdpPolicy(ObjectivePolicy):
    """Policy that minimises the product of energy and time (EDP) for the same work."""

    name: ClassVar[str] = "edp"

    def spent(self, forecast: ColocationForecast) -> float:
        """Power (W) / sum of the speeds: power multiplied by the time that one second of work takes."""
        return forecast.power_w / sum(forecast.speeds)


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
