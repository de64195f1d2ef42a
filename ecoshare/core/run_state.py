"""State of a run: its jobs, and its unanswered commands with their ids.

The scheduler changes it, and the placement strategies read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ecoshare.base.job_spec import JobSpec
from ecoshare.core.records import Job, Lane


class CommandIds:
    """Gives ids, in ascending order without gaps.

    Attributes:
        last: The last id that was given.
    """

    def __init__(self, last: int) -> None:
        """Ids that follow another one; the first id of a run is 1."""
        self.last = last

    def __call__(self) -> int:
        """The next id."""
        self.last += 1
        return self.last


@dataclass(slots=True)
class RunState:
    """State of a run.

    Attributes:
        jobs: All jobs that have arrived, by name.
        opening: Lanes that are being opened, by the id of the command.
        starting: Starting and resuming jobs, by the id of the command that has no answer yet.
        parking: Jobs that are being parked, by the id of the command that has no answer yet.
        live: Number of jobs that have arrived and not ended.
        services: Number of open-ended services among them.
        had_work: Whether a job has arrived that is no open-ended service.
        placed: Number of jobs that have a place.
        stopping: Whether a `StopRequested` event has come, or no device is left.
        draining: Whether a `DrainRequested` event has come.
        held: Jobs that the user holds, by name.
        work_over: Whether a `WorkOver` event has come.
        over_budget: Whether the power limits in force exceed the power budget, because the first are not lowered yet.
        dropped: Ids of commands that only failed devices could answer, and that have no answer yet.
        refusal: Reason why no job can ever start, in words: a power budget that cannot be kept. Empty in any other run.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    opening: dict[int, Lane] = field(default_factory=dict)
    starting: dict[int, Job] = field(default_factory=dict)
    parking: dict[int, Job] = field(default_factory=dict)
    live: int = 0
    services: int = 0
    had_work: bool = False
    placed: int = 0
    stopping: bool = False
    draining: bool = False
    held: dict[str, Job] = field(default_factory=dict)
    work_over: bool = False
    over_budget: bool = False
    dropped: set[int] = field(default_factory=set)
    refusal: str = ""

    def clear(self) -> None:
        """Forget everything. The dictionaries stay the same objects, which others hold."""
        new = RunState()
        for each in fields(self):
            kept = getattr(self, each.name)
            if isinstance(kept, dict):
                kept.clear()
            else:
                setattr(self, each.name, getattr(new, each.name))

    def arrived(self, job: JobSpec) -> None:
        """Count a job that has arrived."""
        self.live += 1
        self.services += job.is_open_ended
        self.had_work |= not job.is_open_ended

    def ended(self, job: JobSpec) -> None:
        """Count a job that has ended."""
        self.live -= 1
        self.services -= job.is_open_ended

    @property
    def only_services(self) -> bool:
        """Whether open-ended services alone are left after other jobs, and they go on."""
        goes_on = not self.stopping and not self.work_over
        return goes_on and self.had_work and 0 < self.services == self.live

    @property
    def is_ending(self) -> bool:
        """Whether no attempt follows another one any more."""
        return self.stopping or self.work_over

    @property
    def may_start(self) -> bool:
        """Whether jobs may start. None starts before the last lane is open: the first lane would get all jobs."""
        return not self.stopping and not self.opening and not self.over_budget
