"""Least attained energy: joules in place of GPU-time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ecoshare.core.events import Config
from ecoshare.core.policies.queues import OPTIONS, Queues
from ecoshare.core.policies.usual import Usual
from ecoshare.core.records import Job, Key

ASSUMED_W = 200.0
"""Of a job whose draw nobody knows, for each of its GPUs."""

LIMITS_J = (650e3, 1440e3)
"""Those of `tiresias` at 200 W."""


class LeastEnergy(Usual):
    """The job that has cost the fewest joules goes first, by queues.

    Ours: `tiresias` counts the time that a GPU is taken, this one what it draws meanwhile, so that of two jobs of one
    length the frugal one ends first, and a job that hardly loads its GPU does not sink like one that saturates it.
    Limits are `limit_1`, `limit_2`, ... in joules beyond an idle device; `starvation` as there.
    """

    name: ClassVar[str] = "least-energy"
    options: ClassVar[tuple[str, ...]] = OPTIONS

    def __init__(self, options: Mapping[str, float]) -> None:
        self._queues = Queues(options, LIMITS_J, lambda job: job.spec.gpus * (job.spec.power_w or ASSUMED_W))
        self.changes_s, self.change = self._queues.changes_s, self._queues.change

    @classmethod
    def from_config(cls, config: Config) -> LeastEnergy:
        """With the options of a run."""
        return cls(dict(config.options))

    def order(self, job: Job, at_s: float) -> Key:
        """Queue, then first start, then when it came into the queue."""
        return (job.level, math.inf if job.first_start_s is None else job.first_start_s, job.level_s)
