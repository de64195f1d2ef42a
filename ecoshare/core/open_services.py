"""Ends of open-ended services: they have no last request, so they serve until all other jobs have ended.

::

    WorkOver      ──► with a place: KillJob at a boundary ──► JobExited ──► COMPLETED
                  ──► parked: KillJob at once             ──► JobExited ──► COMPLETED
                  ──► waiting for a place:                                  COMPLETED
    StopRequested ──► a run of such services alone:           JobExited ──► COMPLETED, unless it had to be killed

A job that could share no lane with them would wait for their ends, and they for its end. It is refused: DropJob.
"""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import DropJob, KillJob
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.records import Job
from ecoshare.core.run_state import RunState
from ecoshare.core.states import JobState
from ecoshare.core.stops import Stops
from ecoshare.values.attempt import WORK_OVER


class OpenServices:
    """Open-ended services of a run.

    Attributes:
        kept_out: Waiting jobs that a service keeps out of a lane, open-ended or not, at the last look.
    """

    def __init__(
        self,
        state: RunState,
        stops: Stops,
        placement: PlacementStrategy,
        end: Callable[[Job, JobState, float, str], None],
        next_id: Callable[[], int],
    ) -> None:
        """No service has to end yet.

        Args:
            state: State of the run.
            stops: Stops of single jobs.
            placement: Placement of the run.
            end: Ends a job that has no process: its state, the time (s) and the cause.
            next_id: Function that returns the id of the next command.
        """
        self._state, self._stops, self._placement = state, stops, placement
        self._end, self._next_id = end, next_id
        self.kept_out: list[Job] = []

    def refuse(self, at_s: float) -> list[DropJob]:
        """End the waiting jobs that services keep out of every lane, for ever. The others are noted."""
        latency, commands = self._placement.fit.latency, list[DropJob]()
        self.kept_out = []
        for job in latency.kept_out(self._placement.waiting):
            if reason := latency.never(job):
                self._end(job, JobState.FAILED, at_s, reason)
                commands.append(DropJob(self._next_id(), job.spec.name, reason))
            else:
                self.kept_out.append(job)
        return commands

    def over(self, at_s: float) -> list[KillJob]:
        """Commands that end all services. Those without a process end at once."""
        self._state.work_over = True
        aside = list(self._state.held.values())
        return self._stops.all_jobs(at_s, WORK_OVER, JobState.COMPLETED, self._end, aside=aside)
