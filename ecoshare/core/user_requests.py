"""Requests of the user about single jobs, and the drain of a queue.

::

    CancelRequested  ──► waiting, held or paused:  DropJob              ──► CANCELLED
                     ──► parked:                   KillJob at once       ──► JobExited ──► CANCELLED
                     ──► with a place:             KillJob at a boundary ──► JobExited ──► CANCELLED
                     ──► a sweep:                  all its trials, and it draws no more
    HoldRequested    ──► waiting:                  HELD ──► ReleaseRequested ──► QUEUED
    PriorityChanged  ──► another place in the order of the policy
    RetryRequested   ──► ended: forgotten, and JobArrived follows
    DrainRequested   ──► jobs without an attempt:  CANCELLED; the others go on to their ends

A drained job is not over: it goes on when the run is resumed (`Job.resumable`). A job with a place is not held, and the
request changes nothing. A job that completes before its next boundary is COMPLETED, even if it was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ecoshare.core.commands import Command, DropJob
from ecoshare.core.events import (
    CancelRequested,
    HoldRequested,
    PriorityChanged,
    ReleaseRequested,
    RetryRequested,
    UserRequest,
)
from ecoshare.core.job_ends import JobEnds, Stops
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.places import LaneRanks
from ecoshare.core.records import Job, JobState
from ecoshare.core.run_state import RunState
from ecoshare.core.sweeps import Sweeps

DRAINED = "the queue was drained"
"""Reason of a job that did not start before the drain."""


class UserRequests:
    """Carries out requests of the user."""

    def __init__(
        self,
        placement: PlacementStrategy,
        sweeps: Sweeps,
        stops: Stops,
        ends: JobEnds,
        ranks: LaneRanks,
        state: RunState,
        next_id: Callable[[], int],
    ) -> None:
        """No request so far; `next_id` returns the id of the next command."""
        self._placement, self._sweeps, self._stops, self._ends = placement, sweeps, stops, ends
        self._ranks, self._state, self._next_id = ranks, state, next_id

    def follow(self, event: UserRequest) -> list[Command]:
        """Commands that follow from a request. A job that has ended, or has not arrived, stays as it is."""
        if isinstance(event, CancelRequested) and event.job in self._sweeps:
            self._sweeps.cancel(event.job)
            trials = [job for job in self._state.jobs.values() if job.spec.sweep == event.job]
            return [command for job in trials for command in self._cancel(job, event)]
        job = self._state.jobs.get(event.job)
        if job is None:
            return []
        match event:
            case CancelRequested():
                return self._cancel(job, event)
            case RetryRequested():
                if job.state.ended:
                    del self._state.jobs[event.job]
                return []
            case _ if job.state.ended:  # it may be one that another session goes on with
                return []
            case HoldRequested():
                self._hold(job, event.at_s)
                return []
            case ReleaseRequested():
                self._release(job, event.at_s)
                return []
            case PriorityChanged():
                return self._reprioritise(job, event)

    def _cancel(self, job: Job, event: CancelRequested) -> list[Command]:
        if job.resumable:  # it waits for another session, and now never begins
            job.resumable, job.cancelled = False, True
            self._ends.ended.append(job)
        if job.state.ended:
            return []
        job.cancelled = True
        if job.state is JobState.PARKED:
            return [self._stops.parked(job, event.at_s, event.reason)]
        if job.state in (JobState.QUEUED, JobState.HELD, JobState.PAUSED):
            self._ends.end(job, JobState.CANCELLED, event.at_s, event.reason)
            return [DropJob(self._next_id(), job.spec.name, event.reason, cancelled=True)]
        return [*self._stops.for_good(job, event.at_s, event.reason, event.at_once)]

    def _hold(self, job: Job, at_s: float) -> None:
        if job.state is JobState.QUEUED and not self._state.draining:
            self._placement.withdraws(job)
            self.keep_held(job, at_s)

    def keep_held(self, job: Job, at_s: float) -> None:
        """Hold a job that the user has held since the segment before."""
        job.move(JobState.HELD, at_s, "held by the user")
        self._state.held[job.spec.name] = job

    def _release(self, job: Job, at_s: float) -> None:
        if job.state is JobState.HELD:
            del self._state.held[job.spec.name]
            job.move(JobState.QUEUED, at_s, "released by the user")
            self._placement.resumes(job, at_s)
            self._ends.ends_unplaceable(job, at_s)

    def _reprioritise(self, job: Job, event: PriorityChanged) -> list[Command]:
        def change() -> None:
            job.spec = replace(job.spec, priority=event.priority)

        self._placement.reorder(job, change, event.at_s)
        return self._ranks.changed(job.lanes)

    def drain(self, at_s: float) -> None:
        """Let the jobs that have started come to their ends. The others are cancelled, and no trial is drawn."""
        self._state.draining = True
        self._sweeps.close()
        for job in [*self._placement.waiting, *self._state.held.values()]:
            has_started = job.attempt > job.spec.earlier_attempts.attempts
            if job.state is JobState.HELD or not has_started:
                self._ends.end(job, JobState.CANCELLED, at_s, DRAINED)
