"""Policies that serve an objective by choosing who runs beside whom: energy, edp, jct, makespan."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key

_LEAST_S = 1.0
"""Of what a job has left, where it decides what the job is worth: nobody knows that to the second."""


class ObjectivePolicy(Usual):
    """Shortest remaining time first, and beside it those with whom the group is best; see `base.Packing`.

    Jobs whose length is not known are ranked by the time that they have had: they are taken to have as much left.
    """

    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """What is left of it, as far as that is known."""
        return (_left_s(job),)

    def rank(self, job: Job) -> float:
        """Members of the group first; the others use what these leave."""
        return float(job.level)

    @abstractmethod
    def spent(self, forecast: ColocationForecast) -> float:
        """In a second."""

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """The joules that its work is worth."""
        return price


class EnergyPolicy(ObjectivePolicy):
    """The fewest joules for all the work.

    With joules that the work costs alone for its worth, a group's cost is E of `tuner/objective.py`: joules spent per
    joule that the same work costs alone. With prices from the fluid linear program (`advisers/work_prices.py`) a job
    that would go better beside another one is not put beside the first that comes.
    """

    name: ClassVar[str] = "energy"

    def spent(self, forecast: ColocationForecast) -> float:
        """Watts."""
        return forecast.power_w


class EdpPolicy(ObjectivePolicy):
    """The smallest product of joules and time for the same work."""

    name: ClassVar[str] = "edp"

    def spent(self, forecast: ColocationForecast) -> float:
        """Watts over the speed of all together: joules of a second's work, times how long that takes."""
        return forecast.power_w / sum(forecast.speeds)


class JctPolicy(ObjectivePolicy):
    """The smallest mean JCT: the most jobs ended in a second, as shortest remaining time first for groups."""

    name: ClassVar[str] = "jct"

    def spent(self, forecast: ColocationForecast) -> float:
        """Time."""
        return 1.0

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Part of the job that is done in a second."""
        return 1.0 / max(_LEAST_S, _left_s(job))


class MakespanPolicy(ObjectivePolicy):
    """The earliest end of the last job: the most work done in a second, the longest jobs first."""

    name: ClassVar[str] = "makespan"

    def order(self, job: Job, at_s: float) -> Key:
        """The longest first."""
        return (-_left_s(job),)

    def spent(self, forecast: ColocationForecast) -> float:
        """Time."""
        return 1.0

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """A second of work."""
        return 1.0


def _left_s(job: Job) -> float:
    """As it was told last: what is made of it since then depends on who is in its lane, so moving would change it."""
    left_s = job.remaining_s(job.told_s)
    return job.attained_s(job.told_s) if left_s is None else left_s
