"""Moves of running jobs to other lanes of their device, from the command to its answer."""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import MoveJob
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.records import Job, Lane
from ecoshare.core.states import JobState


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
        self._stuck: set[Job] = set()

    def begin(self, job: Job, to: Lane) -> MoveJob:
        """Begin a move of a job that may move."""
        command = self._next_id()
        self._moves[command], self._moving[job] = (job, to), to
        to.coming[job.spec.name] = job
        return MoveJob(command, job.spec.name, job.attempt, to.number)

    def may_move(self, job: Job) -> bool:
        """Whether a job may be moved now: it runs on one device, is not on its way, and could move so far."""
        is_free = job not in self._moving and job not in self._stuck and len(job.lanes) == 1
        return job.state is JobState.RUNNING and is_free

    def is_moving(self, job: Job) -> bool:
        """Whether a move of the job has no answer yet."""
        return job in self._moving

    def goes_on_in(self, job: Job) -> Lane:
        """Lane in which a job is, or to which it moves."""
        return self._moving.get(job, job.lanes[0])

    def owns(self, command: int) -> bool:
        """Whether a command is a move that has no answer yet."""
        return command in self._moves

    def done(self, command: int) -> tuple[Lane, Lane]:
        """Complete a move; returns the lane that the job left and the lane that it is in."""
        job, to = self._drop(command)
        return self._lane_index.move(job, to), to

    def refused(self, command: int) -> None:
        """Drop a refused move, and leave its job in its lane until the job gives up its places."""
        job, _ = self._drop(command)
        self._stuck.add(job)

    def stays(self, job: Job) -> None:
        """Note that a starting job cannot move to another lane in this attempt: it shares its process."""
        self._stuck.add(job)

    def left(self, job: Job) -> None:
        """Note that a job leaves its places: its pending move is dropped."""
        self._stuck.discard(job)
        for command in [command for command, (each, _) in self._moves.items() if each is job]:
            self._drop(command)

    def _drop(self, command: int) -> tuple[Job, Lane]:
        job, to = self._moves.pop(command)
        del self._moving[job], to.coming[job.spec.name]
        return job, to
