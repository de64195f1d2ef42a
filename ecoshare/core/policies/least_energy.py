"""Least attained energy: joules in place of GPU-time."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.service_queues import Queues
from ecoshare.core.records import Job

ASSUMED_W = 200.0
"""Of a job whose draw nobody knows, for each of its GPUs."""


class LeastEnergy(Queues):
    """The job that has cost the fewest joules goes first, by queues.

    Ours: `tiresias` counts the time that a GPU is taken, this one what it draws meanwhile, so that of two jobs of one
    length the frugal one ends first, and a job that hardly loads its GPU does not sink like one that saturates it.
    Limits are `limit_1`, `limit_2`, ... in joules beyond an idle device (those of `tiresias` at 200 W); `starvation` as
    there.
    """

    name: ClassVar[str] = "least-energy"
    default_limits: ClassVar[tuple[float, ...]] = (650e3, 1440e3)

    def rate(self, job: Job) -> float:
        """Watts."""
        return job.spec.gpus * (job.spec.power_w or ASSUMED_W)
