"""Tiresias: least attained service in two dimensions, discretised."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.service_queues import Queues
from ecoshare.core.records import Job


class Tiresias(Queues):
    """The job that has had the least GPU-time goes first, by queues: short jobs end soon although no length is known.

    Source: Gu et al., "Tiresias", NSDI 2019, section 3.3 (2D-LAS: service is GPUs x time). In a queue the job that was
    started first goes first, so that none is preempted by its like. Limits between the queues, in GPU-seconds, are
    `limit_1`, `limit_2`, ... (those of the authors' simulator), the starvation knob is `starvation` (off).
    """

    name: ClassVar[str] = "tiresias"
    default_limits: ClassVar[tuple[float, ...]] = (3250.0, 7200.0)

    def rate(self, job: Job) -> float:
        """GPU-seconds."""
        return float(job.spec.gpus)
