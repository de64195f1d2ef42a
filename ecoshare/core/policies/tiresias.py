"""Tiresias: least attained service in two dimensions, discretised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ecoshare.core.events import Config
from ecoshare.core.policies.queues import OPTIONS, Queues
from ecoshare.core.policies.usual import Usual
from ecoshare.core.records import Job, Key

LIMITS_GPU_S = (3250.0, 7200.0)


class Tiresias(Usual):
    """The job that has had the least GPU-time goes first, by queues: short jobs end soon although no length is known.

    Source: Gu et al., "Tiresias", NSDI 2019, section 3.3 (2D-LAS: service is GPUs x time). In a queue the job that was
    started first goes first, so that none is preempted by its like. Limits between the queues, in GPU-seconds, are
    `limit_1`, `limit_2`, ... (those of the authors' simulator), the starvation knob is `starvation` (off).
    """

    name: ClassVar[str] = "tiresias"
    options: ClassVar[tuple[str, ...]] = OPTIONS

    def __init__(self, options: Mapping[str, float]) -> None:
        self._queues = Queues(options, LIMITS_GPU_S, lambda job: float(job.spec.gpus))
        self.changes_s, self.change = self._queues.changes_s, self._queues.change

    @classmethod
    def from_config(cls, config: Config) -> Tiresias:
        """With the options of a run."""
        return cls(dict(config.options))

    def order(self, job: Job, at_s: float) -> Key:
        """Queue, then first start, then when it came into the queue."""
        return (job.level, math.inf if job.first_start_s is None else job.first_start_s, job.level_s)
