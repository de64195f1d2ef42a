"""Jobs that wait for a place, in the order of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge

from sortedcontainers import SortedKeyList

from ecoshare.core.records import Job

Key = tuple[float, ...]


class WaitingJobs:
    """A queue with one line for each distinct demand.

    If the head of a line does not fit, nobody behind it does, so finding the first job that fits looks at one job a
    line however many wait. Jobs of one class and size share a line: a sweep of a thousand trials is one.
    """

    def __init__(self, order: Callable[[Job], Key]) -> None:
        """`order` gives the smallest key to the job that goes first; arrival and name break ties."""
        self._key: Callable[[Job], Key] = lambda job: (*order(job), job.arrival_s)
        self._lines: dict[tuple[object, ...], SortedKeyList] = {}

    def add(self, job: Job) -> None:
        """Put a job at its place in the order."""
        line = self._lines.get(self._demand(job))
        if line is None:
            line = self._lines[self._demand(job)] = SortedKeyList(key=self._key)
        line.add(job)

    def remove(self, job: Job) -> None:
        """Take a job out.

        Raises:
            ValueError: It does not wait.
        """
        line = self._lines[self._demand(job)]
        line.remove(job)
        if not line:
            del self._lines[self._demand(job)]

    def heads(self) -> Iterator[Job]:
        """The first job of each line, first in the policy's order first."""
        return merge(*([line[0]] for line in self._lines.values()), key=self._key)

    def __iter__(self) -> Iterator[Job]:
        return merge(*self._lines.values(), key=self._key)

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    @staticmethod
    def _demand(job: Job) -> tuple[object, ...]:
        return (job.spec.gpus, job.spec.memory, job.whole_lane)
