"""Parked jobs in virtual time: their memory moves at the speed that the costs give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ecoshare.core.commands import ParkJob, ResumeJob
from ecoshare.core.events import Event, Parked, Resumed
from ecoshare.core.records import Job
from ecoshare.simulation.simulated_attempt import SimulatedAttempt
from ecoshare.simulation.simulated_job import SimulatedJob

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class SimulatedParking:
    """Carries out commands that park and resume jobs.

    Attributes:
        transfer_s_per_gib: Time (s) in which a GiB moves, one way.
        jobs: Jobs that have arrived and not ended, by name.
        core_jobs: The same jobs as the core knows them.
        leave: Lets an attempt leave its lane.
        join: Lets an attempt join its lane.
        later: Calls a function at a time (s), and tells the event that it returns, if any.
    """

    transfer_s_per_gib: float
    jobs: Mapping[str, SimulatedJob]
    core_jobs: Mapping[str, Job]
    leave: Callable[[SimulatedAttempt, float], None]
    join: Callable[[SimulatedAttempt, float], None]
    later: Callable[[float, Callable[[float], Event | None]], None]

    def park(self, command: ParkJob, now_s: float) -> None:
        """Let a job leave its turn at once: in virtual time it need not reach a boundary first."""
        running, took_s = self.jobs[command.job], self._transfer_s(command.job)
        seat = running.seat
        assert seat is not None, "only a running job is parked"
        self.leave(seat, now_s)

        def parked(at_s: float) -> Parked | None:
            if seat.is_killed:  # the device failed meanwhile
                return None
            running.placed_s += at_s - running.since_s
            return Parked(at_s, command.id, seat.usage(), took_s)

        self.later(now_s + took_s, parked)

    def resume(self, command: ResumeJob, now_s: float) -> None:
        """Let a parked job join its lane again, when its memory is back."""
        running, took_s = self.jobs[command.job], self._transfer_s(command.job)
        seat = running.seat
        assert seat is not None, "a parked job has an attempt"
        running.since_s = now_s

        def resumed(at_s: float) -> Resumed | None:
            if seat.is_killed:
                return None
            self.join(seat, at_s)
            return Resumed(at_s, command.id, took_s)

        self.later(now_s + took_s, resumed)

    def _transfer_s(self, job: str) -> float:
        return self.transfer_s_per_gib * self.core_jobs[job].demand.persistent_bytes / GIB
