"""Queues that jobs sink through as they are served: what Tiresias, Gittins and least attained energy share."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from typing import ClassVar

from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, Key
from ecoshare.core.states import JobState

_NEARLY = 1.0 - 1e-9
"""Of a limit: reached, but for rounding."""

_LOOK_AGAIN_S = 1.0
"""How soon at the earliest a job is looked at again whose progress is known only as it is told."""


class Queues(WithOptions):
    """A multilevel feedback queue: the first for jobs that were served least.

    Gu et al., "Tiresias", NSDI 2019, section 3.3, which discretises least attained service so that jobs do not preempt
    each other in turn for ever.

    Attributes:
        limits: Service at which a job leaves each queue; none of the last. Options `limit_1`, `limit_2`, ..., else
            `default_limits`.
        starvation: A job that has waited so many times as long as it ran goes back to the first queue, and its service
            is forgotten; infinite for never.
    """

    options: ClassVar[tuple[str, ...]] = (*(f"limit_{number}" for number in range(1, 10)), "starvation")
    default_limits: ClassVar[tuple[float, ...]]

    def __init__(self, options: Mapping[str, float]) -> None:
        given = [options[name] for name in sorted(options) if name.startswith("limit_")]
        self.limits = tuple(sorted(given)) or self.default_limits
        self.starvation = options.get("starvation", math.inf)

    @abstractmethod
    def rate(self, job: Job) -> float:
        """Service of a job in a second of its turn, in the unit of the limits."""

    def order(self, job: Job, at_s: float) -> Key:
        """Queue, then first start, then when it came into the queue."""
        return (job.level, math.inf if job.first_start_s is None else job.first_start_s, job.level_s)

    def service(self, job: Job, at_s: float) -> float:
        """What a job has had, in the unit of the limits."""
        return (job.attained_s(at_s) - job.forgiven_s) * self.rate(job)

    def changes_s(self, job: Job, at_s: float) -> float:
        """When it changes its queue, if it goes on as it does now."""
        if job.state is JobState.QUEUED:
            return self._promoted_s(job, at_s)
        if job.state is not JobState.RUNNING or job.level >= len(self.limits):
            return math.inf
        rest_s = max(0.0, self.limits[job.level] - self.service(job, at_s)) / self.rate(job)
        return at_s + (rest_s if job.has_turn_alone else max(rest_s, _LOOK_AGAIN_S))

    def change(self, job: Job, at_s: float) -> None:
        """Put it into the queue where it belongs now, behind those that are there."""
        if job.state is JobState.QUEUED and self._promoted_s(job, at_s) <= at_s:
            job.level, job.level_s, job.forgiven_s = 0, at_s, job.attained_s(at_s)
            return
        level = bisect_right([limit * _NEARLY for limit in self.limits], self.service(job, at_s))
        if level > job.level:
            job.level, job.level_s = level, at_s

    def _promoted_s(self, job: Job, at_s: float) -> float:
        if not job.level or self.starvation == math.inf:
            return math.inf
        return job.waits_since_s + self.starvation * (job.attained_s(at_s) - job.forgiven_s)
