"""Gittins index over GPU-time: the job that is most likely to end soon goes first, judged by past jobs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, Self

from ecoshare.core.events import Config
from ecoshare.core.policies.tiresias import Tiresias
from ecoshare.core.records import Job, Key


class Gittins(Tiresias):
    """Policy that runs the job with the largest Gittins index first, in the queues of Tiresias.

    The index is the chance of the job to end, per GPU-second that it would take. With `a` the GPU-seconds that the job
    has had, and S the length of a job, distributed like the past jobs::

        G(a) = max over d of  P(S - a <= d | S > a) / E[min(S - a, d) | S > a]

    Alternatively d is fixed to the service quantum. The index changes after each quantum of service.

    Source: Gu et al., "Tiresias", NSDI 2019, section 3.3 (2D-Gittins index); Gittins, "Bandit processes and dynamic
    allocation indices", 1979.

    Options: `quantum` (GPU-seconds), `fixed` (1: d is the quantum; 0: the maximum over d), and those of `tiresias`.
    """

    name: ClassVar[str] = "gittins"
    options: ClassVar[tuple[str, ...]] = (*Tiresias.options, "fixed", "quantum")

    def __init__(self, options: Mapping[str, float], past_gpu_s: Sequence[float]) -> None:
        """Policy that has learned from past jobs.

        Args:
            options: Options of the run.
            past_gpu_s: GPU-seconds of each past job. If there are none, all jobs are alike.
        """
        super().__init__(options)
        self._quantum = options.get("quantum", self.default_limits[0])
        self._fixed = bool(options.get("fixed", 0.0))
        self._past = sorted(past_gpu_s)
        self._sums = [0.0, *accumulate(self._past)]
        self._known: dict[float, float] = {}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Policy with the options and the past jobs of a run."""
        return cls(dict(config.options), config.past_gpu_s)

    def index(self, attained: float) -> float:
        """Gittins index of a job that has had `attained` GPU-seconds; 0 if no past job needed more."""
        if attained not in self._known:
            begin = bisect_right(self._past, attained)
            ends = range(begin, len(self._past))
            spans = [self._quantum] if self._fixed else [self._past[end] - attained for end in ends]
            self._known[attained] = max((self._ratio(attained, begin, span) for span in spans), default=0.0)
        return self._known[attained]

    def _ratio(self, attained: float, begin: int, span: float) -> float:
        """Chance to end within `span` GPU-seconds of service / expected service in that span."""
        end = bisect_right(self._past, attained + span)
        left = len(self._past) - begin
        served = self._sums[end] - self._sums[begin] - attained * (end - begin) + span * (len(self._past) - end)
        return (end - begin) / served if left and served > 0.0 else 0.0

    def _quanta(self, job: Job, at_s: float) -> int:
        return int(self.service(job, at_s) / self._quantum + 1e-9)

    def changes_s(self, job: Job, at_s: float) -> float:
        """Time (s) at which the job has had another quantum or changes its queue."""
        changes_s = super().changes_s(job, at_s)
        if not job.has_turn_alone:
            return changes_s
        rest = (self._quanta(job, at_s) + 1) * self._quantum - self.service(job, at_s)
        return min(changes_s, at_s + rest / self.rate(job))

    def order(self, job: Job, at_s: float) -> Key:
        """Queue, then index, the largest first."""
        return (job.level, -self.index(self._quanta(job, at_s) * self._quantum))

    def rank(self, job: Job) -> float:
        """Rank by queue, then by index."""
        index = self.index(self._quanta(job, job.told_s) * self._quantum)
        return job.level - math.tanh(index)
