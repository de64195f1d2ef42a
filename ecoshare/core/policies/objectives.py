"""Policies that choose co-located jobs for an objective: energy, edp, jct or makespan."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key

_LEAST_S = 1.0
"""Lower bound (s) of the time left of a job in its worth: no forecast is exact to the second."""


class ObjectivePolicy(Usual):
    """Policy that runs the job with the shortest remaining time, co-located with the best group for it.

    A job of unknown length is assumed to have as much time left as it has had. See `base.PackingPolicy`.
    """

    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time (s); the time that the job has had if the remaining time is unknown."""
        return (_left_s(job),)

    def rank(self, job: Job) -> float:
        """Level of the job: members of the group first; the other jobs use the time that these leave."""
        return float(job.level)

    @abstractmethod
    def spent(self, forecast: ColocationForecast) -> float:
        """Cost per second of a device with this forecast; see `base.PackingPolicy`."""

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Energy (J) that one second of the job's work alone is worth."""
        return price


class EnergyPolicy(ObjectivePolicy):
    """Policy that spends the fewest joules on all the work.

    If the worth of the work is its energy alone, the cost of a group is E of `advisers/setting_evaluation.py`: joules
    spent per joule that the same work costs alone. With prices from the fluid linear program
    (`advisers/work_prices.py`), a job waits for a good neighbour instead of joining the first one.
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


class JctPolicy(ObjectivePolicy):
    """Policy that minimises the mean JCT: the most jobs ended per second; shortest remaining time first for groups."""

    name: ClassVar[str] = "jct"

    def spent(self, forecast: ColocationForecast) -> float:
        """One: each second costs the same."""
        return 1.0

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Part of the remaining job that one second of work does."""
        return 1.0 / max(_LEAST_S, _left_s(job))


class MakespanPolicy(ObjectivePolicy):
    """Policy that minimises the end of the last job: the most work done per second, the longest jobs first."""

    name: ClassVar[str] = "makespan"

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time, the longest first."""
        return (-_left_s(job),)

    def spent(self, forecast: ColocationForecast) -> float:
        """One: each second costs the same."""
        return 1.0

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """One: all work is worth the same."""
        return 1.0


def _left_s(job: Job) -> float:
    """Remaining turn time (s) as told last.

    An estimate since then would depend on the other jobs of the lane, so moving the job would change it.
    """
    left_s = job.remaining_s(job.told_s)
    return job.attained_s(job.told_s) if left_s is None else left_s
