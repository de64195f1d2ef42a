"""Observed rates of jobs alone on their device and beside a neighbour, from the reports of progress.

::

    reports  ·····│······│······│
                  └─ interval ──┘   iterations and turn time between two reports among the same neighbours

A mean over the whole attempt would mix the rates before and after a neighbour came.
"""

from __future__ import annotations

from ecoshare.core.policies.base import NeighbourRate
from ecoshare.core.records import Job
from ecoshare.values.attempt import Usage

FEWEST = 20
"""Least iterations of an interval that gives an iteration time: the ends of an interval lie inside iterations."""


class Rates:
    """Rates of jobs, in the time of a typical device of the run, so that jobs of one class can be compared."""

    def __init__(self) -> None:
        self._since: dict[Job, Usage] = {}
        self._alone_s: dict[Job, float] = {}
        self._class_alone_s: dict[str, float] = {}

    def begin(self, job: Job) -> None:
        """Begin an interval of a job with its present usage, unless it has one."""
        self._since.setdefault(job, job.usage)

    def has_begun(self, job: Job) -> bool:
        """Whether the job has an interval."""
        return job in self._since

    def cut(self, job: Job) -> None:
        """End the interval of a job, because its neighbours have changed."""
        self._since.pop(job, None)

    def forget(self, job: Job) -> None:
        """Forget a job: its attempt is over."""
        self.cut(job)
        self._alone_s.pop(job, None)

    def was_alone(self, job: Job) -> None:
        """Note that a job had no neighbour in its interval so far. The interval goes on."""
        iterations, iteration_s = self._window(job)
        if iterations >= FEWEST:
            self._alone_s[job] = self._class_alone_s[job.spec.job_class] = iteration_s

    def beside(self, job: Job) -> NeighbourRate:
        """Rate of a job beside its neighbour in its interval."""
        iterations, iteration_s = self._window(job)
        alone_s = self._expected_s(job)
        return NeighbourRate(job, iterations, None if alone_s is None or iteration_s <= 0.0 else alone_s / iteration_s)

    def _expected_s(self, job: Job) -> float | None:
        """Time (s) of an iteration alone; None if unknown.

        The value is that of this attempt, else the last one of its class, else that of the job's specification.
        """
        if job in self._alone_s:
            return self._alone_s[job]
        if (seen_s := self._class_alone_s.get(job.spec.job_class)) is not None:
            return seen_s
        if job.spec.service_s is None or not job.spec.iterations:
            return None
        return job.spec.service_s / job.spec.iterations

    def _window(self, job: Job) -> tuple[int, float]:
        """Number of iterations in the interval of a job, and the time (s) of one; zeros if there is none."""
        since = self._since.get(job)
        if since is None:
            return 0, 0.0
        iterations = job.usage.iterations - max(1, since.iterations)  # time counts from the first boundary
        passed_s = (job.usage.span_s - job.usage.waited_s) - (since.span_s - since.waited_s)
        speed = job.lanes[0].device.speed(job.spec.job_class)
        return (iterations, passed_s / iterations * speed) if iterations > 0 else (0, 0.0)
