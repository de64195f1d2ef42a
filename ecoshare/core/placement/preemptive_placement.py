"""Preemption: every device is one lane of one place, and jobs behind in the order give way to jobs ahead of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ecoshare.core.placement.job_queue import queue_key
from ecoshare.core.placement.preemption import Preemption
from ecoshare.core.placement.steps import Step
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.records import Job
from ecoshare.core.states import JobState


class PreemptivePlacement(PlacementStrategy):
    """Strategy of a policy that preempts, in a run in which each job has its devices to itself."""

    def __init__(self, parts: PlacementParts) -> None:
        super().__init__(parts)
        self._preemption = Preemption(self.lane_index, self.fit.fits)

    def resumes(self, job: Job, at_s: float) -> None:
        """Add a job that paused to the queue. The next walk looks at the whole queue again."""
        super().resumes(job, at_s)
        self._preemption.order_changed()

    def runs(self, job: Job, at_s: float) -> None:
        """Note that a job runs: from now on it may be preempted, if it can be moved."""
        if job.spec.movable:
            key = queue_key(self.policy, job, at_s)
            self._preemption.runs(job, key, self.policy.drift(job), at_s)

    def stops(self, job: Job) -> None:
        """Note that a running job can no longer be preempted."""
        if job.spec.movable and job.state is JobState.RUNNING:
            self._preemption.stops(job)

    def device_failed(self, device: str) -> None:
        """Note that a device has failed: its jobs wait again, and no other device comes free for them."""
        self._preemption.order_changed()

    def left(self, job: Job) -> None:
        """Note that a job is about to leave its places. It may be one that gave way."""
        self._preemption.gone(job)

    def reorder(self, job: Job, change: Callable[[], None], at_s: float) -> None:
        """Change the place of a job in the order. The next walk looks at the whole queue again."""
        super().reorder(job, change, at_s)
        self._preemption.order_changed()

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        return self._preemption.walk(self.waiting, newcomer, at_s)
