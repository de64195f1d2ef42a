"""Stops of attempts: those that another attempt will follow, and those that end their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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

    def for_good(self, job: Job, at_s: float, reason: str, at_once: bool) -> list[KillJob]:
        """End an attempt that no other one will follow.

        Args:
            job: Job with a place.
            at_s: Present time (s).
            reason: Reason in words.
            at_once: Whether the job is killed now, even if it stops already.
        """
        job.again = False
        if job.state is not JobState.STOPPING:
            self._placement.stops(job)
            job.move(JobState.STOPPING, at_s, reason)
        elif not at_once:
            return []
        return [KillJob(self._next_id(), job.spec.name, job.attempt, at_once, reason)]

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

    def all_jobs(
        self,
        at_s: float,
        reason: str,
        state: JobState,
        end: Callable[[Job, JobState, float, str], None],
        at_once: bool = False,
        aside: Iterable[Job] = (),
    ) -> list[KillJob]:
        """End all jobs for good, those with a place at their next boundaries.

        Args:
            at_s: Present time (s).
            reason: Reason in words.
            state: State of jobs without a process, which end now.
            end: Ends such a job.
            at_once: Whether jobs with a place are killed now, even those that stop already.
            aside: Jobs that neither wait nor have a place: paused trials, and jobs that the user holds.
        """
        waiting = list(self._placement.waiting)
        parked = [job for job in waiting if job.state is JobState.PARKED]
        for job in [*waiting, *aside]:
            if job.state is not JobState.PARKED:
                end(job, state, at_s, reason)
        commands = [self.parked(job, at_s, reason) for job in parked]
        for job in self._placement.lane_index.placed_jobs():
            commands += self.for_good(job, at_s, reason, at_once)
        return commands
