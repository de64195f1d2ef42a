"""Queue of the jobs that wait for a place, in the order of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace, merge
from operator import attrgetter

from sortedcontainers import SortedKeyList

from ecoshare.core.policies.base import Policy
from ecoshare.core.records import Job, Key

_place = attrgetter("place")


def demand(job: Job) -> tuple[object, ...]:
    """Resource class: devices, nodes, memory, and whether the job must have a whole device or run alone.

    If one job of a class does not fit, none does. A parked job is a class of its own.
    """
    spec = job.spec
    parked = None if job.parked_in is None else job.number  # each fits into its own lane only
    lanes = spec.gpus, spec.takes_turns, spec.nodes
    return (lanes, spec.memory, job.least_bytes, job.whole_device, job.is_suspect, parked)


def queue_key(policy: Policy, job: Job, at_s: float) -> Key:
    """Sort key of a job in the queue, and among the running jobs: ties of the policy's order go by arrival."""
    return (*policy.order(job, at_s), job.arrival_s, job.number)


def _ignored(_job: Job) -> None:
    """Do nothing: the queue has no listener."""


class WaitingJobs:
    """Queue with one line for each distinct demand.

    A line is sorted by the `place` of its jobs, which must not change while they wait. If the head of a line does not
    fit, no job behind it does. So the search for the first job that fits looks at one job of each line, however many
    wait. Jobs of one class and size share a line: a sweep of a thousand trials is one line.

    Attributes:
        services: Number of services in the queue.
        heard: Function that is called with each job after it was added or removed. A reader uses it to keep an order of
            its own up to date.
    """

    def __init__(self, demand_of: Callable[[Job], tuple[object, ...]] = demand) -> None:
        """Empty queue.

        Args:
            demand_of: Key of a job's line: if the first job of a line does not fit, no other job with this key does.
        """
        self._demand = demand_of
        self._lines: dict[tuple[object, ...], SortedKeyList] = {}
        self._count = self.services = 0
        self.heard: Callable[[Job], None] = _ignored

    def add(self, job: Job) -> None:
        """Put a job at its place in the order."""
        wanted = self._demand(job)
        line = self._lines.get(wanted)
        if line is None:
            line = self._lines[wanted] = SortedKeyList(key=_place)
        line.add(job)
        self._count += 1
        self.services += job.spec.service is not None
        self.heard(job)

    def remove(self, job: Job) -> None:
        """Take a job out of the queue.

        Raises:
            ValueError: The job does not wait, but others of its line do.
            KeyError: No job of its line waits.
        """
        wanted = self._demand(job)
        line = self._lines[wanted]
        line.remove(job)
        self._count -= 1
        self.services -= job.spec.service is not None
        if not line:
            del self._lines[wanted]
        self.heard(job)

    def walk(self) -> QueueWalk:
        """Walk through the queue in order, which skips the rest of a line that does not fit."""
        return QueueWalk(list(self._lines.values()))

    def is_first(self, job: Job) -> bool:
        """Whether a waiting job is the head of its line."""
        return self._lines[self._demand(job)][0] is job

    def __iter__(self) -> Iterator[Job]:
        return merge(*self._lines.values(), key=_place)

    def __len__(self) -> int:
        return self._count


class QueueWalk:
    """Walk through several lines of jobs in one order."""

    def __init__(self, lines: Sequence[Sequence[Job]]) -> None:
        self._heap: list[tuple[Key, int, int]] = [(line[0].place, number, 0) for number, line in enumerate(lines)]
        heapify(self._heap)
        self._lines = lines

    @property
    def job(self) -> Job | None:
        """First job that was not looked at yet; None at the end."""
        if not self._heap:
            return None
        _, number, index = self._heap[0]
        return self._lines[number][index]

    def go_on(self) -> None:
        """Go on to the next job. The present one has left the queue, or stays in it and waits for devices."""
        place, number, index = self._heap[0]
        line = self._lines[number]
        if index < len(line) and line[index].place == place:
            index += 1
        if index < len(line):
            heapreplace(self._heap, (line[index].place, number, index))
        else:
            heappop(self._heap)

    def does_not_fit(self) -> None:
        """Leave out the rest of the line: the present job does not fit, so no job behind it does."""
        heappop(self._heap)
