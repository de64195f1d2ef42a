"""How fast jobs do their iterations alone on their device and beside another one, by what was told meanwhile.

::

    told     ·····│······│······│
                  └─ window ────┘   iterations done and turn time passed between two tellings among the same neighbours

A mean since the attempt began would mix what a job did before and after a neighbour came.
"""

from __future__ import annotations

from ecoshare.core.events import Usage
from ecoshare.core.policies.base import NeighbourRate
from ecoshare.core.records import Job

FEWEST = 20
"""Iterations of a window from which the time of one is taken: its ends lie somewhere inside an iteration."""


class Rates:
    """Times are those on a typical device of the run's, so that those of one class can be compared."""

    def __init__(self) -> None:
        self._since: dict[Job, Usage] = {}
        self._alone_s: dict[Job, float] = {}
        self._class_alone_s: dict[str, float] = {}

    def begin(self, job: Job) -> None:
        """A window begins with what is known of a job now, unless it has one."""
        self._since.setdefault(job, job.usage)

    def has_begun(self, job: Job) -> bool:
        """Whether it has a window."""
        return job in self._since

    def cut(self, job: Job) -> None:
        """Its neighbours are others now: what comes belongs to another window."""
        self._since.pop(job, None)

    def forget(self, job: Job) -> None:
        """Its attempt is over."""
        self.cut(job)
        self._alone_s.pop(job, None)

    def was_alone(self, job: Job) -> None:
        """Nobody was beside a job in its window, which goes on."""
        iterations, iteration_s = self._window(job)
        if iterations >= FEWEST:
            self._alone_s[job] = self._class_alone_s[job.spec.job_class] = iteration_s

    def beside(self, job: Job) -> NeighbourRate:
        """What its window tells of a job that is beside another one."""
        iterations, iteration_s = self._window(job)
        alone_s = self._expected_s(job)
        return NeighbourRate(job, iterations, None if alone_s is None or iteration_s <= 0.0 else alone_s / iteration_s)

    def _expected_s(self, job: Job) -> float | None:
        """An iteration alone: of this attempt, else the last that was seen of its class, else by what was known of the
        job before it ran."""
        if job in self._alone_s:
            return self._alone_s[job]
        if (seen_s := self._class_alone_s.get(job.spec.job_class)) is not None:
            return seen_s
        if job.spec.service_s is None or not job.spec.iterations:
            return None
        return job.spec.service_s / job.spec.iterations

    def _window(self, job: Job) -> tuple[int, float]:
        """Iterations since its window began, and the time of one."""
        since = self._since.get(job)
        if since is None:
            return 0, 0.0
        iterations = job.usage.iterations - max(1, since.iterations)  # time is counted from the first boundary on
        passed_s = (job.usage.span_s - job.usage.waited_s) - (since.span_s - since.waited_s)
        speed = job.lanes[0].device.speed(job.spec.job_class)
        return (iterations, passed_s / iterations * speed) if iterations > 0 else (0, 0.0)
