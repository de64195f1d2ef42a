"""Parking: jobs that wait with their process alive and their device memory on the host, from command to answer.

::

    RUNNING ──ParkJob──► PARKING ──Parked──► PARKED, in the queue ──ResumeJob──► RESUMING ──Resumed──► RUNNING
               Refused: the job runs on                               its memory does not come back: JobExited
"""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import ParkJob, ResumeJob
from ecoshare.core.events import Parked, Resumed
from ecoshare.core.placement.host_memory import HostMemory
from ecoshare.core.records import Job
from ecoshare.core.run_state import RunState
from ecoshare.core.states import JobState


class Parking:
    """Commands that park and resume jobs. The scheduler changes places and queues."""

    def __init__(self, host: HostMemory, state: RunState, next_id: Callable[[], int]) -> None:
        """No job is parked.

        Args:
            host: Host memory for parked jobs.
            state: State of the run; `parking` and `starting` are kept up to date.
            next_id: Function that returns the id of the next command.
        """
        self._host, self._state, self._next_id = host, state, next_id

    def park(self, job: Job, at_s: float, reason: str) -> ParkJob:
        """Park a running job, which keeps its place until the answer."""
        job.command = self._next_id()
        self._state.parking[job.command] = job
        self._host.reserve(job)
        job.move(JobState.PARKING, at_s, reason)
        return ParkJob(job.command, job.spec.name, job.attempt)

    def parked(self, event: Parked) -> Job | None:
        """Job that is parked now, still in its places; None if it was asked to stop meanwhile."""
        job = self._answered(event.command)
        job.tell(event.usage, event.at_s)
        self._host.moved(job, job.lanes[0].device.name, event.took_s)
        if job.state is not JobState.PARKING:
            return None
        job.parked_in = job.lanes[0]
        job.move(JobState.PARKED, event.at_s, "its memory is on the host")
        return job

    def refused(self, command: int, at_s: float, error: str) -> Job:
        """Job that runs on because it cannot be parked."""
        job = self._answered(command)
        self._host.refuses(job, at_s)
        if job.state is JobState.PARKING:
            job.move(JobState.RUNNING, at_s, error)
        return job

    def resume(self, job: Job, at_s: float) -> ResumeJob:
        """Resume a parked job, which has its place in its lane again."""
        job.command = self._next_id()
        job.parked_in, job.passed = None, 0
        self._state.starting[job.command] = job
        job.move(JobState.RESUMING, at_s, "there is room")
        return ResumeJob(job.command, job.spec.name, job.attempt, job.lanes[0].number)

    def resumed(self, event: Resumed) -> Job | None:
        """Job that has its memory back and runs; None if it was asked to stop meanwhile."""
        job = self._state.starting.pop(event.command)
        job.command = None
        self._host.release(job)
        self._host.moved(job, job.lanes[0].device.name, event.took_s)
        if job.state is not JobState.RESUMING:
            return None
        job.move(JobState.RUNNING, event.at_s, "resumed")
        job.told_s = event.at_s
        return job

    def ended(self, job: Job) -> None:
        """Forget the attempt of a job that has exited; other jobs are ignored."""
        if job.command is not None:
            self._state.parking.pop(job.command, None)
        job.parked_in = None
        self._host.ended(job)

    def _answered(self, command: int) -> Job:
        job = self._state.parking.pop(command)
        job.command = None
        return job
