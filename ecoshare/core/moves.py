"""Moves of running jobs, from the command to its answer: to another lane, or to the host and back."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ecoshare.core.commands import MoveJob, ParkJob, ResumeJob
from ecoshare.core.events import Parked, Resumed
from ecoshare.core.memory import HostMemory
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.core.run_state import RunState


class JobMoves:
    """Moves that are under way. Until the answer, a job has its place in the old lane and one in the new lane."""

    def __init__(self, lane_index: LaneIndex, next_id: Callable[[], int]) -> None:
        """No moves.

        Args:
            lane_index: Index of the lanes.
            next_id: Function that returns the id of the next command.
        """
        self._lane_index, self._next_id = lane_index, next_id
        self._moves: dict[int, tuple[Job, Lane]] = {}
        self._moving: dict[Job, Lane] = {}
        self._stuck: dict[Job, float] = {}

    def begin(self, job: Job, to: Lane) -> MoveJob:
        """Begin a move of a job that may move."""
        command = self._next_id()
        self._moves[command], self._moving[job] = (job, to), to
        to.coming[job.spec.name] = job
        return MoveJob(command, job.spec.name, job.attempt, to.number)

    def may_move(self, job: Job) -> bool:
        """Whether a job may be moved now: it runs on one device, is not on its way, and has got on since a refusal."""
        may_go = job.usage.done > self._stuck.get(job, -1.0) and not job.usage.keeps_lane
        return job.state is JobState.RUNNING and job not in self._moving and len(job.lanes) == 1 and may_go

    def is_moving(self, job: Job) -> bool:
        """Whether a move of the job has no answer yet."""
        return job in self._moving

    def goes_on_in(self, job: Job) -> Lane:
        return self._moving.get(job, job.lanes[0])

    def owns(self, command: int) -> bool:
        """Whether a command is a move that has no answer yet."""
        return command in self._moves

    def done(self, command: int) -> tuple[Lane, Lane]:
        """Complete a move; returns the lane that the job left and the lane that it is in."""
        job, to = self._drop(command)
        return self._lane_index.move(job, to), to

    def refused(self, command: int) -> None:
        """Drop a refused move, and leave its job in its lane until it has come to a further end of an iteration."""
        job, _ = self._drop(command)
        self._stuck[job] = job.usage.done

    def stays(self, job: Job) -> None:
        """Note that a starting job cannot move to another lane in this attempt: it shares its process."""
        self._stuck[job] = inf

    def left(self, job: Job) -> None:
        """Note that a job leaves its places: its pending move is dropped."""
        self._stuck.pop(job, None)
        for command in [command for command, (each, _) in self._moves.items() if each is job]:
            self._drop(command)

    def _drop(self, command: int) -> tuple[Job, Lane]:
        job, to = self._moves.pop(command)
        del self._moving[job], to.coming[job.spec.name]
        return job, to


class Parking:
    """Commands that park and resume jobs. The scheduler changes places and queues.

    ::

        RUNNING ──ParkJob──► PARKING ──Parked──► PARKED, in the queue ──ResumeJob──► RESUMING ──Resumed──► RUNNING
                   Refused: the job runs on                               its memory does not come back: JobExited
    """

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
