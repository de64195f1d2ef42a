"""Tiresias: least attained service in two dimensions, discretised; and the queues through which jobs sink."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from typing import ClassVar

from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, JobState, Key

_NEARLY = 1.0 - 1e-9
"""Part of a limit that counts as reached, because of rounding."""

_LOOK_AGAIN_S = 1.0
"""Shortest time (s) until the next look at a job that shares its turn: its progress is known only from reports."""


class Queues(WithOptions):
    """Multilevel feedback queue: the first queue holds the jobs with the least service.

    Source: Gu et al., "Tiresias", NSDI 2019, section 3.3. The queues discretise least attained service, so that jobs do
    not preempt each other in turn for ever.

    Attributes:
        limits: Service at which a job leaves each queue but the last. Options `limit_1`, `limit_2`, ..., else
            `default_limits`.
        starvation: Option `starvation`: ratio of waiting time to running time at which a job goes back to the first
            queue, with its service forgotten; infinity for never.
    """

    needs_places: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = (*(f"limit_{number}" for number in range(1, 10)), "starvation")
    default_limits: ClassVar[tuple[float, ...]]

    def __init__(self, options: Mapping[str, float]) -> None:
        given = [options[name] for name in sorted(options) if name.startswith("limit_")]
        self.limits = tuple(sorted(given)) or self.default_limits
        self.starvation = options.get("starvation", math.inf)

    @abstractmethod
    def rate(self, job: Job) -> float:
        """Service of a job per second of its turn, in the unit of the limits."""

    def order(self, job: Job, at_s: float) -> Key:
        """Queue, then time of the first start, then time of entry into the queue."""
        return (job.level, math.inf if job.first_start_s is None else job.first_start_s, job.level_s)

    def service(self, job: Job, at_s: float) -> float:
        """Service that a job has had, without forgotten service, in the unit of the limits."""
        return (job.attained_s(at_s) - job.forgiven_s) * self.rate(job)

    def changes_s(self, job: Job, at_s: float) -> float:
        """Time (s) at which the job changes its queue if it goes on running or waiting; infinity for never."""
        if job.state.waits:
            return self._promoted_s(job, at_s)
        if job.state is not JobState.RUNNING or job.level >= len(self.limits):
            return math.inf
        rest_s = max(0.0, self.limits[job.level] - self.service(job, at_s)) / self.rate(job)
        return at_s + (rest_s if job.has_turn_alone else max(rest_s, _LOOK_AGAIN_S))

    def change(self, job: Job, at_s: float) -> None:
        """Put a job into the queue where it belongs now, behind the jobs there."""
        if job.state.waits and self._promoted_s(job, at_s) <= at_s:
            job.level, job.level_s, job.forgiven_s = 0, at_s, job.attained_s(at_s)
            return
        level = bisect_right([limit * _NEARLY for limit in self.limits], self.service(job, at_s))
        if level > job.level:
            job.level, job.level_s = level, at_s

    def _promoted_s(self, job: Job, at_s: float) -> float:
        if not job.level or self.starvation == math.inf:
            return math.inf
        return job.waits_since_s + self.starvation * (job.attained_s(at_s) - job.forgiven_s)


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
