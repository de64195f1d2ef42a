"""Ends of attempts and of jobs: another attempt follows, a trial pauses, or the job ends.

::

    JobExited ──► COMPLETED                      it did its work, or is a service that may end now
              ──► PRUNED                         early stopping ended it
              ──► QUEUED                         another attempt follows: a retry, or it gave its place away
              ──► PAUSED                         a trial at a rung
              ──► CANCELLED                      the user stopped the run, or cancelled the job
              ──► FAILED                         anything else
"""

from __future__ import annotations

from ecoshare.core.device_failures import DeviceFailures
from ecoshare.core.events import JobExited
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.records import Job
from ecoshare.core.retries import NO_FAULT_OF_ITS_OWN, again
from ecoshare.core.run_state import RunState
from ecoshare.core.states import JobState
from ecoshare.core.sweeps import Sweeps
from ecoshare.values.attempt import Outcome, Usage

KILLED = 137
"""Exit code of a process that SIGKILL has ended, in the convention of a shell."""


class JobEnds:
    """Ends of the jobs of a run.

    Attributes:
        ended: Jobs that have ended since the list was last cleared, in the order of their ends.
    """

    def __init__(self, placement: PlacementStrategy, sweeps: Sweeps, failures: DeviceFailures, state: RunState) -> None:
        """No job has ended."""
        self._placement, self._sweeps, self._failures, self._state = placement, sweeps, failures, state
        self._fit = placement.fit
        self.ended: list[Job] = []

    def end(self, job: Job, state: JobState, at_s: float, cause: str, has_failed: bool = False) -> None:
        """End a job that has no place.

        Args:
            job: The job.
            state: Final state of the job.
            at_s: Present time (s).
            cause: Cause in words.
            has_failed: Whether the job has failed by itself, so that its end does not come from that of the session.
        """
        ends_with_session = state is JobState.CANCELLED or (state is JobState.FAILED and self._state.stopping)
        job.resumable = ends_with_session and not (has_failed or job.cancelled)
        self._placement.ended(job)
        self._state.held.pop(job.spec.name, None)
        job.move(state, at_s, cause)
        self._fit.ended(job)
        self._state.ended(job.spec)
        self._sweeps.ended(job)
        self.ended.append(job)

    def end_unplaceable(self, at_s: float) -> None:
        """End all waiting jobs that could not start even if no other job ran."""
        for job in list(self._placement.waiting):
            if job.state is JobState.QUEUED:
                self.ends_unplaceable(job, at_s)

    def ends_unplaceable(self, job: Job, at_s: float) -> bool:
        """End a waiting job that could not start even if no other job ran. Returns whether it has ended."""
        if reason := self._failures.never(job):
            self.end(job, JobState.FAILED, at_s, reason)
        return bool(reason)

    def attempt_over(self, job: Job, event: JobExited) -> Outcome:
        """Decide what follows the end of an attempt, which has left its places.

        Returns:
            The outcome of the attempt, with failed devices taken into account.
        """
        cause, outcome = event.reason or event.outcome.value, self._failures.outcome(job, event.outcome)
        if outcome is Outcome.COMPLETED or self._completes(job, outcome, event):
            self.end(job, JobState.COMPLETED, event.at_s, cause)
        elif outcome is Outcome.PRUNED:
            self.end(job, JobState.PRUNED, event.at_s, cause)
        elif not (self._state.is_ending or job.cancelled) and self._goes_on(job, outcome):
            self.requeue(job, event.at_s, cause)
        elif outcome in NO_FAULT_OF_ITS_OWN and (job.cancelled or (self._state.stopping and not self._failures.over)):
            self.end(job, JobState.CANCELLED, event.at_s, cause)
        else:
            is_retried = self._state.stopping and not job.cancelled and self._goes_on(job, outcome)
            has_failed = not (is_retried or outcome in NO_FAULT_OF_ITS_OWN)
            self.end(job, JobState.FAILED, event.at_s, cause, has_failed)
        return outcome

    def _completes(self, job: Job, outcome: Outcome, event: JobExited) -> bool:
        """Whether the end of an attempt is the end of an open-ended service that was asked to end."""
        if not job.spec.is_open_ended or outcome not in NO_FAULT_OF_ITS_OWN:
            return False
        by_user = self._state.stopping and not self._state.had_work
        return self._state.work_over or (by_user and ended_by_user(outcome, event.exit_code))

    def _goes_on(self, job: Job, outcome: Outcome) -> bool:
        """Whether another attempt follows. The counts of the job are updated."""
        if outcome in (Outcome.STOPPED, Outcome.DEVICE_FAILED) and self._sweeps.pauses(job):
            return True
        goes_on = again(job, outcome, bool(job.lanes) and self._fit.could_have_more(job, outcome))
        if job.is_suspect:
            self._fit.suspects(job)
        return goes_on

    def requeue(self, job: Job, at_s: float, cause: str) -> None:
        """Put a job back into the queue for its next attempt, or pause it at its rung."""
        pauses = self._sweeps.pauses(job)
        job.move(JobState.PAUSED if pauses else JobState.QUEUED, at_s, cause)
        job.again = False
        job.earlier_s += job.usage.held_s
        if job.spec.movable:
            job.earlier_iterations = job.done_iterations
        job.usage, job.boundary_s, job.stood_s = Usage(), None, 0.0
        job.lanes = ()
        if pauses:
            self._placement.pauses(job)
            self._sweeps.left(job)
        elif self._failures.reasons:
            self._placement.resumes(job, at_s)
            self.ends_unplaceable(job, at_s)
        else:
            self._placement.waits(job, at_s)


def ended_by_user(outcome: Outcome, exit_code: int | None) -> bool:
    """Whether a stopped service has ended in time, and not by SIGKILL."""
    return outcome is Outcome.STOPPED and exit_code != KILLED
