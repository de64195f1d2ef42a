"""Least attained energy: joules in place of GPU-time."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.tiresias import Queues
from ecoshare.core.records import Job

ASSUMED_W = 200.0
"""Assumed power (W) of each GPU of a job, above the idle GPU, if its power is unknown."""


class LeastEnergy(Queues):
    """Policy that runs the job which has cost the fewest joules first, by queues.

    This policy is our own. `tiresias` counts the time for which a GPU is taken; this policy counts the energy. So of
    two jobs of equal length the frugal one ends first, and a job that hardly loads its GPU sinks more slowly than one
    that saturates it.

    Options: the limits `limit_1`, `limit_2`, ... are joules above an idle device (defaults: those of `tiresias` at
    200 W). `starvation` is the same as in `tiresias`.
    """

    name: ClassVar[str] = "least-energy"
    default_limits: ClassVar[tuple[float, ...]] = (650e3, 1440e3)

    def rate(self, job: Job) -> float:
        """Power (W) of the job above its idle devices."""
        return job.spec.gpus * (job.spec.active_w or ASSUMED_W)
