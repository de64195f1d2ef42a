"""Tiresias: least attained service in two dimensions, discretised."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.shared.service_queues import Queues
from ecoshare.core.records import Job


class Tiresias(Queues):
    """Policy that runs the job with the least GPU-time first, by queues. Short jobs end soon without known lengths.

    Source: Gu et al., "Tiresias", NSDI 2019, section 3.3 (2D-LAS: service is GPUs x time). In a queue the job that
    started first goes first, so no job is preempted by a job of its own queue.

    Options: `limit_1`, `limit_2`, ... are the limits between the queues in GPU-seconds (defaults: those of the authors'
    simulator). `starvation` is the starvation knob (default: off).
    """

    name: ClassVar[str] = "tiresias"
    default_limits: ClassVar[tuple[float, ...]] = (3250.0, 7200.0)

    def rate(self, job: Job) -> float:
        """GPU-seconds per second of the turn: the number of GPUs of the job."""
        return float(job.spec.gpus)
