"""Preemption: every device is one lane of one place, and jobs behind in the order give way to jobs ahead of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import chain
from operator import attrgetter, itemgetter

from sortedcontainers import SortedKeyList

from ecoshare.core.placement.job_queue import QueueWalk, WaitingJobs, queue_key
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.steps import GiveWay, Start, Step
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.records import Job, JobState, Key, Lane, LaneState

Yields = Callable[[Lane, Key, float], bool]
"""Whether a lane is free, will be free, or is held by a job that would give way now to a job with this key."""


@dataclass(slots=True)
class _Failure:
    """Failed search for one number of devices on one node.

    Attributes:
        place: Key from which on no job has room on the known nodes.
        unknown: Nodes on which that may have changed.
    """

    place: Key
    unknown: set[str] = field(default_factory=set)


class FailedSearches:
    """Failed searches for room on one node, by the number of devices.

    If a job has no room, no job behind it in the order has any. A node stays without room until a job comes, goes or
    moves in the order there, as long as no job falls back in the order by running. So few nodes are searched again.
    """

    def __init__(self, lane_index: LaneIndex, yields: Yields) -> None:
        self._lane_index, self._yields = lane_index, yields
        self._failures: dict[int, _Failure] = {}

    def note(self, job: Job, claimed: Set[str]) -> None:
        """Note that there is no room for a job. Nodes that other jobs have claimed were not searched."""
        self._failures[job.spec.gpus] = _Failure(job.place, set(claimed))

    def touch(self, nodes: Iterable[str]) -> None:
        """Note that something has changed on these nodes."""
        for failure in self._failures.values():
            failure.unknown.update(nodes)

    def stands(self, job: Job, at_s: float) -> bool:
        """Whether a failed search still holds for a job: it has no room on any node. Changed nodes are searched."""
        failure = self._failures.get(job.spec.gpus)
        if failure is None or job.place < failure.place:
            return False
        failure.place = job.place
        while failure.unknown:
            node = next(iter(failure.unknown))
            if self._has_room(node, job, at_s):
                return False
            failure.unknown.remove(node)
        return True

    def _has_room(self, node: str, job: Job, at_s: float) -> bool:
        lanes = self._lane_index.nodes[node]
        spare = len(lanes) - job.spec.gpus
        for lane in lanes:
            if not self._yields(lane, job.place, at_s):
                spare -= 1
                if spare < 0:
                    return False
        return True


_place, _first, _second = attrgetter("place"), itemgetter(0), itemgetter(1)


class MovableJobs:
    """Running jobs in the order of the policy, in one line for each drift.

    A running job moves in the order: its remaining time shrinks, and the time it has had grows. Jobs of equal drift
    keep their order among themselves, so only the end of each line is looked at.
    """

    def __init__(self) -> None:
        self._lines: dict[float, SortedKeyList] = {}

    def add(self, job: Job, place: Key, drift: float, at_s: float) -> None:
        """Add a job that runs from now on.

        Args:
            job: Job that can be moved.
            place: Key of the job in the order now.
            drift: Change per second of the first part of the key.
            at_s: Present time (s).
        """
        # The key is extrapolated to time 0, which makes jobs of a line comparable, whenever they began.
        job.place, job.drift = (place[0] - drift * at_s, *place[1:]), drift
        line = self._lines.get(drift)
        if line is None:
            line = self._lines[drift] = SortedKeyList(key=_place)
        line.add(job)

    def remove(self, job: Job) -> None:
        """Remove a job that no longer runs or was asked to stop.

        Raises:
            ValueError: The job is not in its line.
            KeyError: No job of its drift is there.
        """
        line = self._lines[job.drift]
        line.remove(job)
        if not line:
            del self._lines[job.drift]

    @property
    def sink(self) -> bool:
        """Whether any job falls back in the order as it runs."""
        return any(drift > 0.0 for drift in self._lines)

    @staticmethod
    def is_behind(job: Job, key: Key, at_s: float) -> bool:
        """Whether a job of the lines is behind a key in the order now."""
        first = job.place[0] + job.drift * at_s
        return first > key[0] or (first == key[0] and job.place[1:] > key[1:])

    def behind(self, key: Key, at_s: float) -> Iterator[Job]:
        """Jobs behind a key in the order now, the last first."""
        tails = [_behind(line, drift * at_s, key) for drift, line in self._lines.items()]
        last_first = merge(*tails, key=_first, reverse=True) if len(tails) > 1 else chain.from_iterable(tails)
        return map(_second, last_first)

    def give_way(self, key: Key, gpus: int, room: int, at_s: float) -> list[Job]:
        """Jobs that lose their devices to a newcomer; empty if that would not make enough room.

        The result is the same as if all jobs were placed anew in the order of the policy, with each job that does not
        fit passed by.

        Args:
            key: Key of the newcomer.
            gpus: Number of devices that the newcomer needs.
            room: Number of devices that no job has or will get.
            at_s: Present time (s).
        """
        behind: list[tuple[Job, int]] = []  # each job with the number of devices left for it without the newcomer
        for job in self.behind(key, at_s):
            if room >= gpus:
                break
            behind.append((job, room))
            room += job.spec.gpus
        if room < gpus:
            return []
        lost: list[Job] = []
        for job, left in reversed(behind):
            if left < gpus:
                lost.append(job)
                gpus -= job.spec.gpus
        return lost

    def give_way_within(self, key: Key, gpus: int, nodes: int, room: Counter[str], at_s: float) -> list[Job]:
        """Jobs that lose their devices to a newcomer that may span `nodes` nodes; empty if that would not make room.

        The last jobs in the order lose first, on the nodes where they make enough room first.

        Args:
            key: Key of the newcomer.
            gpus: Number of devices that the newcomer needs.
            nodes: Most nodes that the newcomer may span.
            room: Number of devices on each node that no job has or will get.
            at_s: Present time (s).
        """
        room = room.copy()
        behind: list[Job] = []
        for job in self.behind(key, at_s):
            behind.append(job)
            most = 0
            for lane in job.lanes:
                node = lane.device.node
                room[node] += 1
                most = max(most, room[node])
            if most >= gpus or (nodes > 1 and sum(devices for _, devices in room.most_common(nodes)) >= gpus):
                break
        else:
            return []
        chosen = room.most_common(nodes)
        names = {node for node, _ in chosen}
        spare = sum(devices for _, devices in chosen) - gpus
        lost = [job for job in behind if any(lane.device.node in names for lane in job.lanes)]
        for job in reversed(lost[:-1]):  # without the last job there was not enough room
            devices = sum(lane.device.node in names for lane in job.lanes)
            if devices <= spare:
                spare -= devices
                lost.remove(job)
        return lost


def _behind(line: SortedKeyList, drifted: float, key: Key) -> Iterator[tuple[Key, Job]]:
    """Jobs of a line behind a key, the last first, each with its own key now."""
    for job in reversed(line):
        place = (job.place[0] + drifted, *job.place[1:])
        if place <= key:
            return
        yield place, job


class Preemption:
    """Placement with preemption. Every device is one lane of one place, and jobs behind in the order give way.

    ::

        queue, in the policy's order     devices
          A  fits                  ──►   start A
          B  does not, but C and D run, are behind B in the order and can be moved:
                                   ──►   C, D give way; B waits for their devices, and no other job gets them
          E  fits into what is left ──►  start E

    A job without room now has none before devices come free or the order changes. So if only a newcomer is new, only
    the newcomer is looked at.
    """

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


class PreemptivePlacement(PlacementStrategy):
    """Strategy of a policy that preempts, in a run in which each job has its devices to itself."""

    def __init__(self, parts: PlacementParts) -> None:
        super().__init__(parts)
        self._preemption = Preemption(self.lane_index, self.fit.fits)

    def resumes(self, job: Job, at_s: float) -> None:
        """Add a job that paused to the queue. The next walk looks at the whole queue again."""
        super().resumes(job, at_s)
        self._preemption.order_changed()

    def runs(self, job: Job, at_s: float) -> None:
        """Note that a job runs: from now on it may be preempted, if it can be moved."""
        if job.spec.movable:
            key = queue_key(self.policy, job, at_s)
            self._preemption.runs(job, key, self.policy.drift(job), at_s)

    def stops(self, job: Job) -> None:
        """Note that a running job can no longer be preempted."""
        if job.spec.movable and job.state is JobState.RUNNING:
            self._preemption.stops(job)

    def device_failed(self, device: str) -> None:
        """Note that a device has failed: its jobs wait again, and no other device comes free for them."""
        self._preemption.order_changed()

    def left(self, job: Job) -> None:
        """Note that a job is about to leave its places. It may be one that gave way."""
        self._preemption.gone(job)

    def reorder(self, job: Job, change: Callable[[], None], at_s: float) -> None:
        """Change the place of a job in the order. The next walk looks at the whole queue again."""
        super().reorder(job, change, at_s)
        self._preemption.order_changed()

    def _walk(self, at_s: float, newcomer: Job | None) -> Iterator[Step]:
        return self._preemption.walk(self.waiting, newcomer, at_s)
