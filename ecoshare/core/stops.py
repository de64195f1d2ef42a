"""Stops of attempts that another attempt will follow, and of parked jobs."""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import Command, KillJob
from ecoshare.core.events import JobExited
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.records import Job
from ecoshare.core.states import JobState


class Stops:
    """Stops of single jobs."""

    def __init__(self, placement: PlacementStrategy, next_id: Callable[[], int]) -> None:
        """No stop so far; `next_id` returns the id of the next command."""
        self._placement, self._next_id = placement, next_id

    def for_now(self, job: Job, at_s: float, reason: str, at_once: bool) -> KillJob:
        """End an attempt that another attempt will follow."""
        self._placement.stops(job)
        job.again = True
        job.move(JobState.STOPPING, at_s, reason)
        return KillJob(self._next_id(), job.spec.name, job.attempt, at_once, reason)

    def parked(self, job: Job, at_s: float, reason: str, again: bool = False) -> KillJob:
        """Kill a parked job: it has no place in which it could end at a boundary."""
        self._placement.waiting.remove(job)
        job.again = again
        job.move(JobState.STOPPING, at_s, reason)
        return KillJob(self._next_id(), job.spec.name, job.attempt, True, reason)

    def neighbours(self, culprit: Job, event: JobExited) -> list[Command]:
        """Restart all jobs that shared a context with the culprit: its unclean death may have corrupted them."""
        devices = set(culprit.device_names)
        reason = f"suspect: {culprit.spec.name} died beside it ({event.reason})"
        return [
            self.for_now(job, event.at_s, reason, at_once=True)
            for lane in self._placement.lane_index.lanes.values()
            if lane.device.name in devices
            for job in lane.jobs.values()
            if job.state in (JobState.STARTING, JobState.RUNNING)
        ]
