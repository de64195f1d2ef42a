"""State of a run: jobs and unanswered commands. The scheduler changes it, and the placement strategy reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ecoshare.core.records import Job, Lane


@dataclass(slots=True)
class RunState:
    """State of a run.

    Attributes:
        jobs: All jobs that have arrived, by name.
        opening: Lanes that are being opened, by the id of the command.
        starting: Starting and resuming jobs, by the id of the command that has no answer yet.
        parking: Jobs that are being parked, by the id of the command that has no answer yet.
        live: Number of jobs that have arrived and not ended.
        placed: Number of jobs that have a place.
        stopping: Whether a `StopRequested` event has come, or no device is left.
        over_budget: Whether the power limits in force exceed the power budget, because the first are not lowered yet.
        refusal: Reason why no job can ever start, in words: a power budget that cannot be kept. Empty in any other run.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    opening: dict[int, Lane] = field(default_factory=dict)
    starting: dict[int, Job] = field(default_factory=dict)
    parking: dict[int, Job] = field(default_factory=dict)
    live: int = 0
    placed: int = 0
    stopping: bool = False
    over_budget: bool = False
    refusal: str = ""

    @property
    def may_start(self) -> bool:
        """Whether jobs may start. None starts before the last lane is open: the first lane would get all jobs."""
        return not self.stopping and not self.opening and not self.over_budget
