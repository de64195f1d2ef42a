"""Grant returns: running jobs give back memory that they were granted before their demand was known.

::

    a job of an unseen class   ─── granted all free memory ───► profiled ──LimitMemory──► its allocator is limited
                                                                         ◄──Done──────── the rest is free from now on
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ecoshare.core.commands import LimitMemory
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.records import Job
from ecoshare.core.states import JobState
from ecoshare.values.class_profile import MemoryDemand


class GrantReturns:
    """Memory that jobs give back. It does not count as free while an allocator may still take it."""

    def __init__(self, fit: MemoryFit, next_id: Callable[[], int]) -> None:
        """Returns to a memory fit.

        Args:
            fit: Memory fit of jobs and lanes.
            next_id: Function that returns the id of the next command.
        """
        self._fit, self._next_id = fit, next_id
        self._asked: dict[int, tuple[Job, MemoryDemand]] = {}
        self._refusing: set[Job] = set()

    def at_once(self, job: Job) -> bool:
        """Let a job give back memory that is free at once. Returns whether its grant has changed.

        The grant grows if the job needs more than it was granted. The caller must then look whether the memory of the
        device still suffices (`PlacementStrategy.outgrown`).
        """
        if not self._fit.returns_at_once(job):
            return False
        needed = self._fit.needed(job)
        is_new = needed != job.demand
        self._fit.grant(job, needed)
        return is_new

    def ask(self, job: Job) -> Iterator[LimitMemory]:
        """Command that limits the allocator of a running job to what it needs, if it was granted more.

        A job that has refused is not asked again in this attempt.
        """
        if self._fit.returns_at_once(job) or job.state is not JobState.RUNNING:
            return
        if job in self._refusing or any(each is job for each, _ in self._asked.values()):
            return
        needed = self._fit.needed(job)
        if needed.peak_bytes < job.demand.peak_bytes:
            command = self._next_id()
            self._asked[command] = job, needed
            yield LimitMemory(command, job.spec.name, job.attempt, needed.peak_bytes)

    def owns(self, command: int) -> bool:
        """Whether a command is a limit that has no answer yet."""
        return command in self._asked

    def answered(self, command: int, is_limited: bool) -> None:
        """Count what a job gives back, if it keeps the limit."""
        job, needed = self._asked.pop(command)
        if is_limited:
            job.cap_bytes = needed.peak_bytes
            self._fit.grant(job, needed)
        else:
            self._refusing.add(job)

    def left(self, job: Job) -> None:
        """Note that a job leaves its places: a limit has no answer any more."""
        self._refusing.discard(job)
        self._asked = {command: each for command, each in self._asked.items() if each[0] is not job}
