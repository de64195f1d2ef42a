"""Who must give up a place, so that a job ahead of it in the order may run.

::

    queue, in the policy's order     devices
      A  fits                  ──►   start A
      B  does not, but C and D run, are behind B in the order and can be moved:
                               ──►   C, D give way; B waits for their devices, and nobody else gets them
      E  fits into what is left ──►  start E

A job for which there is no room now has none before devices come free or the order changes. So a newcomer alone is
looked at where it alone is new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from ecoshare.core.placement.failed_searches import FailedSearches
from ecoshare.core.placement.job_queue import QueueWalk, WaitingJobs
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.preemptible_jobs import MovableJobs
from ecoshare.core.records import Job, Key, Lane
from ecoshare.core.states import JobState, LaneState


@dataclass(frozen=True, slots=True)
class Start:
    """A job gets these lanes."""

    job: Job
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class GiveWay:
    """These jobs must stop, so that another one gets their devices; or none, where their round is over.

    Attributes:
        reason: Why, where it is neither of these.
    """

    jobs: list[Job]
    to: Job | None
    reason: str = ""


class Preemption:
    """Seats jobs where every device is one lane of one place, and those behind give way."""

    def __init__(self, room: LaneIndex, fits: Callable[[Job, Lane], bool]) -> None:
        self._movable = MovableJobs()
        self._room, self._fits = room, fits
        self._failures = FailedSearches(room, self._yields)
        self._giving: set[Job] = set()
        self._coming: Counter[str] = Counter()  # by node, devices of those that give way; never changed, but replaced
        self._coming_devices = 0
        self._claimants: list[Job] = []  # that wait for these
        self._idle = 0  # devices that nobody who waited could use when all were looked at

    def runs(self, job: Job, place: Key, drift: float, at_s: float) -> None:
        """A job that can be moved runs; see `MovableJobs.add`."""
        self._movable.add(job, place, drift, at_s)
        self._failures.touch([lane.device.node for lane in job.lanes])

    def stops(self, job: Job) -> None:
        """It cannot be asked to give way any more."""
        self._movable.remove(job)

    def gone(self, job: Job) -> None:
        """A job leaves its places, maybe one that gave way."""
        self._failures.touch([lane.device.node for lane in job.lanes])
        if job in self._giving:
            self._giving.remove(job)
            self._coming = self._coming - Counter(lane.device.node for lane in job.lanes)
            self._coming_devices -= job.spec.gpus

    def order_changed(self) -> None:
        """All must be looked at again."""
        self._idle = -1

    def walk(self, waiting: WaitingJobs, newcomer: Job | None, at_s: float) -> Iterator[Start | GiveWay]:
        """What is to be done now, one after the other; each must be done before the next is asked for."""
        new = [newcomer] if newcomer is not None and waiting.is_first(newcomer) else []
        idle = self._room.free + self._coming_devices
        if self._claimants or new:
            few = sorted([*self._claimants, *new], key=attrgetter("place"))
            idle = yield from self._seat(QueueWalk([few]), at_s)
        if idle > self._idle:
            idle = yield from self._seat(waiting.walk(), at_s)
        self._idle = idle

    def _seat(self, walk: QueueWalk, at_s: float) -> Generator[Start | GiveWay, None, int]:
        """Go through some of the queue; returns the devices that nobody of it can use, now or when they come."""
        coming = self._coming
        claims = _Claims(self._coming_devices, coming)
        self._claimants = []
        while (job := walk.job) is not None:
            if lanes := self._place(job, claims):
                yield Start(job, lanes)
                walk.go_on()
                continue
            victims = self._victims(job, claims, at_s)
            if victims is None:
                walk.does_not_fit()
                continue
            if victims:
                yield GiveWay(victims, job)
                self._giving.update(victims)
                self._coming = self._coming + Counter(lane.device.node for each in victims for lane in each.lanes)
                self._coming_devices += sum(each.spec.gpus for each in victims)
            self._claimants.append(job)
            walk.go_on()
        if self._coming is not coming:
            self._failures.touch(self._coming)  # from the next walk on they count as theirs who find them
        return self._room.free - claims.held + claims.coming

    def _place(self, job: Job, claims: _Claims) -> tuple[Lane, ...]:
        if job.spec.gpus > self._room.free - claims.held:
            return ()
        return self._room.find(job, partial(self._fits, job), claims.kept)

    def _victims(self, job: Job, claims: _Claims, at_s: float) -> list[Job] | None:
        """Who gives way to a job for which there is no room now, and its claim on what comes; None where nobody can.

        Nobody has to where enough others are stopping already.
        """
        gpus, nodes = job.spec.gpus, job.spec.nodes
        if nodes is None or gpus == 1:
            room = self._room.free - claims.held + claims.coming
            victims = [] if gpus <= room else self._movable.give_way(job.place, gpus, room, at_s)
            if gpus > room and not victims:
                return None
        elif nodes == 1 and self._failures.stands(job, at_s):
            return None
        else:
            free = self._room.free_by_node() + claims.by_node
            for node in claims.nodes:
                del free[node]
            chosen = free.most_common(nodes)
            victims = []
            if sum(devices for _, devices in chosen) < gpus:
                victims = self._movable.give_way_within(job.place, gpus, nodes, free, at_s)
                if not victims:
                    if nodes == 1 and not self._movable.sink:
                        self._failures.note(job, claims.nodes)
                    return None
                free.update(lane.device.node for each in victims for lane in each.lanes)
                chosen = free.most_common(nodes)
            claims.nodes.update(node for node, _ in chosen)
            claims.kept.update(self._room.free_lanes(claims.nodes))
        claims.wait(gpus, sum(each.spec.gpus for each in victims))
        return victims

    def _yields(self, lane: Lane, place: Key, at_s: float) -> bool:
        for job in lane.jobs.values():  # one at most
            if job in self._giving:
                return True
            running = job.spec.movable and job.state is JobState.RUNNING
            return running and self._movable.is_behind(job, place, at_s)
        return lane.state is LaneState.OPEN


@dataclass(slots=True)
class _Claims:
    """What jobs that wait have a right to in one walk, since they are ahead of those that are looked at after them.

    Attributes:
        coming: Devices that will be free, and nobody has a claim on.
        by_node: Devices that will be free, by node.
        held: Free devices that wait for the rest of what a job needs.
        kept: Lanes that nobody else may have.
        nodes: Nodes that belong to a gang that waits.
    """

    coming: int
    by_node: Counter[str]
    held: int = 0
    kept: set[int] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)

    def wait(self, gpus: int, more: int) -> None:
        """A job waits for so many devices, and so many more are coming."""
        self.coming += more
        taken = min(gpus, self.coming)
        self.coming -= taken
        self.held += gpus - taken
