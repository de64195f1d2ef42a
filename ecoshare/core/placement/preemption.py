"""Preemption: which running jobs give up their devices so that a job ahead of them in the order may run.

::

    queue, in the policy's order     devices
      A  fits                  ──►   start A
      B  does not, but C and D run, are behind B in the order and can be moved:
                               ──►   C, D give way; B waits for their devices, and no other job gets them
      E  fits into what is left ──►  start E

A job without room now has none before devices come free or the order changes. So if only a newcomer is new, only the
newcomer is looked at.
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
from ecoshare.core.placement.steps import GiveWay, Start
from ecoshare.core.records import Job, Key, Lane
from ecoshare.core.states import JobState, LaneState


class Preemption:
    """Placement with preemption. Every device is one lane of one place, and jobs behind in the order give way."""

    def __init__(self, lane_index: LaneIndex, fits: Callable[[Job, Lane], bool]) -> None:
        self._movable = MovableJobs()
        self._lane_index, self._fits = lane_index, fits
        self._failures = FailedSearches(lane_index, self._yields)
        self._giving: set[Job] = set()
        self._coming: Counter[str] = Counter()  # devices of the jobs that give way, by node; replaced, never changed
        self._coming_devices = 0
        self._claimants: list[Job] = []  # jobs that wait for these devices
        self._idle = 0  # devices that no waiting job could use at the last full walk

    def runs(self, job: Job, place: Key, drift: float, at_s: float) -> None:
        """Note that a job that can be moved runs; see `MovableJobs.add`."""
        self._movable.add(job, place, drift, at_s)
        self._failures.touch([lane.device.node for lane in job.lanes])

    def stops(self, job: Job) -> None:
        """Note that a running job can no longer be preempted."""
        self._movable.remove(job)

    def gone(self, job: Job) -> None:
        """Note that a job leaves its places. It may be one that gave way."""
        self._failures.touch([lane.device.node for lane in job.lanes])
        if job in self._giving:
            self._giving.remove(job)
            self._coming = self._coming - Counter(lane.device.node for lane in job.lanes)
            self._coming_devices -= job.spec.gpus

    def order_changed(self) -> None:
        """Note that the order has changed: the next walk looks at the whole queue."""
        self._idle = -1

    def walk(self, waiting: WaitingJobs, newcomer: Job | None, at_s: float) -> Iterator[Start | GiveWay]:
        """Actions to take now. The caller carries out each action before it asks for the next.

        Args:
            waiting: Queue of waiting jobs.
            newcomer: Job that has just arrived, if nothing else has changed; else None.
            at_s: Present time (s).
        """
        new = [newcomer] if newcomer is not None and waiting.is_first(newcomer) else []
        idle = self._lane_index.free + self._coming_devices
        if self._claimants or new:
            few = sorted([*self._claimants, *new], key=attrgetter("place"))
            idle = yield from self._seat(QueueWalk([few]), at_s)
        if idle > self._idle:
            idle = yield from self._seat(waiting.walk(), at_s)
        self._idle = idle

    def _seat(self, walk: QueueWalk, at_s: float) -> Generator[Start | GiveWay, None, int]:
        """Walk through some of the queue. Returns the number of free or coming devices that no job of it can use."""
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
            self._failures.touch(self._coming)  # from the next walk on, any job may claim these devices
        return self._lane_index.free - claims.held + claims.coming

    def _place(self, job: Job, claims: _Claims) -> tuple[Lane, ...]:
        if job.spec.gpus > self._lane_index.free - claims.held:
            return ()
        return self._lane_index.find(job, partial(self._fits, job), claims.kept)

    def _victims(self, job: Job, claims: _Claims, at_s: float) -> list[Job] | None:
        """Jobs that give way to a job without room; None if they would not make enough. The job's claim is noted.

        The list is empty if enough jobs are stopping already.
        """
        gpus, nodes = job.spec.gpus, job.spec.nodes
        if nodes is None or gpus == 1:
            room = self._lane_index.free - claims.held + claims.coming
            victims = [] if gpus <= room else self._movable.give_way(job.place, gpus, room, at_s)
            if gpus > room and not victims:
                return None
        elif nodes == 1 and self._failures.stands(job, at_s):
            return None
        else:
            free = self._lane_index.free_by_node() + claims.by_node
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
            claims.kept.update(self._lane_index.free_lanes(claims.nodes))
        claims.wait(gpus, sum(each.spec.gpus for each in victims))
        return victims

    def _yields(self, lane: Lane, place: Key, at_s: float) -> bool:
        for job in lane.jobs.values():  # at most one job
            if job in self._giving:
                return True
            running = job.spec.movable and job.state is JobState.RUNNING
            return running and self._movable.is_behind(job, place, at_s)
        return lane.state is LaneState.OPEN


@dataclass(slots=True)
class _Claims:
    """Claims of waiting jobs in one walk. Jobs later in the walk are behind in the order and must respect them.

    Attributes:
        coming: Number of devices that will be free without a claim on them.
        by_node: Number of devices that will be free on each node.
        held: Number of free devices that are held for a job until the rest of its devices come.
        kept: Numbers of the lanes that no other job may have.
        nodes: Nodes that are claimed by a waiting gang.
    """

    coming: int
    by_node: Counter[str]
    held: int = 0
    kept: set[int] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)

    def wait(self, gpus: int, more: int) -> None:
        """Note the claim of a job that waits for `gpus` devices, while `more` devices are coming in addition."""
        self.coming += more
        taken = min(gpus, self.coming)
        self.coming -= taken
        self.held += gpus - taken
