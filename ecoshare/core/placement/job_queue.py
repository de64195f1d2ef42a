"""Jobs that wait for a place, in the order of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace, merge
from operator import attrgetter

from sortedcontainers import SortedKeyList

from ecoshare.core.records import Job, Key

_place = attrgetter("place")


def demand(job: Job) -> tuple[object, ...]:
    """What a job asks for: jobs of one demand fit alike."""
    spec = job.spec
    return (spec.gpus, spec.nodes, spec.memory, job.whole_lane, job.is_suspect)


def _ignored(_job: Job) -> None:
    """No reader is there."""


class WaitingJobs:
    """A queue with one line for each distinct demand, by the `place` of each job, which must not change meanwhile.

    If the head of a line does not fit, nobody behind it does, so finding the first job that fits looks at one job a
    line however many wait. Jobs of one class and size share a line: a sweep of a thousand trials is one.

    Attributes:
        heard: Called with each job after it was added or removed, by which a reader keeps up an order of its own.
    """

    def __init__(self, demand_of: Callable[[Job], tuple[object, ...]] = demand) -> None:
        """Nobody waits.

        Args:
            demand_of: Of a job, what those have in common none of whom fits where the first does not.
        """
        self._demand = demand_of
        self._lines: dict[tuple[object, ...], SortedKeyList] = {}
        self._count = 0
        self.heard: Callable[[Job], None] = _ignored

    def add(self, job: Job) -> None:
        """Put a job at its place in the order."""
        wanted = self._demand(job)
        line = self._lines.get(wanted)
        if line is None:
            line = self._lines[wanted] = SortedKeyList(key=_place)
        line.add(job)
        self._count += 1
        self.heard(job)

    def remove(self, job: Job) -> None:
        """Take a job out.

        Raises:
            ValueError: It does not wait.
        """
        wanted = self._demand(job)
        line = self._lines[wanted]
        line.remove(job)
        self._count -= 1
        if not line:
            del self._lines[wanted]
        self.heard(job)

    def walk(self) -> QueueWalk:
        """Go through the queue in order, leaving out what cannot fit either."""
        return QueueWalk(list(self._lines.values()))

    def is_first(self, job: Job) -> bool:
        """Whether a job that waits is the head of its line."""
        return self._lines[self._demand(job)][0] is job

    def __iter__(self) -> Iterator[Job]:
        return merge(*self._lines.values(), key=_place)

    def __len__(self) -> int:
        return self._count


class QueueWalk:
    """Goes through lines of jobs in one order.

    The first of what is left is `job`, None at the end.
    """

    def __init__(self, lines: Sequence[Sequence[Job]]) -> None:
        self._heap: list[tuple[Key, int, int]] = [(line[0].place, number, 0) for number, line in enumerate(lines)]
        heapify(self._heap)
        self._lines = lines

    @property
    def job(self) -> Job | None:
        """The first of those that were not looked at yet."""
        if not self._heap:
            return None
        _, number, index = self._heap[0]
        return self._lines[number][index]

    def go_on(self) -> None:
        """It has left the queue, or stays there and waits for what will be free."""
        place, number, index = self._heap[0]
        line = self._lines[number]
        if index < len(line) and line[index].place == place:
            index += 1
        if index < len(line):
            heapreplace(self._heap, (line[index].place, number, index))
        else:
            heappop(self._heap)

    def does_not_fit(self) -> None:
        """Nor does anybody else of its line."""
        heappop(self._heap)
