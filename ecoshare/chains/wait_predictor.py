"""Predictors of the wait of a job that would be submitted now.

A provisioner asks one of them again and again while an allocation runs. `gradient_boosting.py` has the learned one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ecoshare.chains.queue_features import mean_s, planned_wait_s
from ecoshare.chains.queue_sight import QueueSight


class WaitPredictor(Protocol):
    """Predictor of the wait in a queue."""

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Wait (s), 0 or more, that a job of `gpus` GPUs and this time limit should be given if submitted now."""
        ...


@dataclass(frozen=True, slots=True)
class Reactive:
    """Predictor that expects no wait, so the successor is submitted when its predecessor ends."""

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True, slots=True)
class AverageWait:
    """Mean wait of the last jobs that started and had at least as many GPUs.

    Attributes:
        count: Number of jobs in the mean.
    """

    count: int = 20

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Mean wait (s); 0 if no such job has started."""
        return mean_s([job.wait_s for job in sight.started if job.gpus >= gpus][-self.count :])


@dataclass(frozen=True, slots=True)
class PlannedWait:
    """Wait if all jobs last until their limits and start in order: close to Slurm's own estimate, which is pessimistic.

    Nothing is learned here.
    """

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Wait (s) in the plan by limits."""
        return planned_wait_s(sight, gpus, 1.0)
