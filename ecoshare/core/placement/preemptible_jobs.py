"""Running jobs that may be preempted: they can stop at a boundary and go on elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter, itemgetter

from sortedcontainers import SortedKeyList

from ecoshare.core.records import Job, Key

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
