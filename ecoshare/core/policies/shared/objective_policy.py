"""Base of the policies that choose co-located jobs for an objective: energy, edp, jct and makespan."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class ObjectivePolicy(Usual):
    """Policy that runs the job with the shortest remaining time, co-located with the best group for it.

    A job of unknown length is assumed to have as much time left as it has had. See `base.PackingPolicy`.
    """

    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time (s); the time that the job has had if the remaining time is unknown."""
        return (remaining_s(job),)

    def rank(self, job: Job) -> float:
        """Level of the job: members of the group first; the other jobs use the time that these leave."""
        return float(job.level)

    @abstractmethod
    def spent(self, forecast: ColocationForecast) -> float:
        """Cost per second of a device with this forecast; see `base.PackingPolicy`."""

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Energy (J) that one second of the job's work alone is worth."""
        return price


def remaining_s(job: Job) -> float:
    """Remaining turn time (s) as told last.

    An estimate since then would depend on the other jobs of the lane, so moving the job would change it.
    """
    left_s = job.remaining_s(job.told_s)
    return job.attained_s(job.told_s) if left_s is None else left_s
