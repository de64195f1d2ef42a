"""Running jobs that may be asked to give way: those that can be stopped at a boundary and go on elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import merge
from operator import attrgetter, itemgetter

from sortedcontainers import SortedKeyList

from ecoshare.core.records import Job, Key

_place, _first = attrgetter("place"), itemgetter(0)


class MovableJobs:
    """In the order of the policy, in lines of those that drift alike.

    A job that runs moves in the order: what remains of it shrinks, what it had grows. Jobs that do so at one speed keep
    their order among themselves, so that only the end of each line is looked at.
    """

    def __init__(self) -> None:
        self._lines: dict[float, SortedKeyList] = {}

    def add(self, job: Job, place: Key, drift: float, at_s: float) -> None:
        """A job runs from now on.

        Args:
            place: Its key in the order now.
            drift: By how much the first part of it changes in a second.
        """
        # As if it had always run: comparable with others of its line, whenever they began.
        job.place, job.drift = (place[0] - drift * at_s, *place[1:]), drift
        line = self._lines.get(drift)
        if line is None:
            line = self._lines[drift] = SortedKeyList(key=_place)
        line.add(job)

    def remove(self, job: Job) -> None:
        """It does not run any more, or was asked to stop.

        Raises:
            ValueError: It was not there.
        """
        line = self._lines[job.drift]
        line.remove(job)
        if not line:
            del self._lines[job.drift]

    @property
    def sink(self) -> bool:
        """Whether any falls back in the order as it runs."""
        return any(drift > 0.0 for drift in self._lines)

    @staticmethod
    def is_behind(job: Job, key: Key, at_s: float) -> bool:
        """Whether one of them is behind a place in the order now."""
        first = job.place[0] + job.drift * at_s
        return first > key[0] or (first == key[0] and job.place[1:] > key[1:])

    def behind(self, key: Key, at_s: float) -> Iterator[Job]:
        """Those behind a place in the order, the last first."""
        tails = [_behind(line, drift * at_s, key) for drift, line in self._lines.items()]
        return (job for _, job in merge(*tails, key=_first, reverse=True))

    def give_way(self, key: Key, gpus: int, room: int, at_s: float) -> list[Job]:
        """Those that lose their devices to a newcomer; empty where that would not make enough room.

        Afterwards the devices are as if all had been seated anew in the policy's order, each who still fits.

        Args:
            key: The newcomer's place.
            gpus: Devices that it needs.
            room: Devices that nobody has or will get.
        """
        behind: list[tuple[Job, int]] = []  # each with the devices that would be left for it without the newcomer
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
        """Those that lose their devices to a newcomer that may span so many nodes: the last ones on the nodes where
        there is room first; empty where that would not make enough.

        Args:
            room: By node, devices that nobody has or will get.
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
        for job in reversed(lost[:-1]):  # the last one made it possible
            devices = sum(lane.device.node in names for lane in job.lanes)
            if devices <= spare:
                spare -= devices
                lost.remove(job)
        return lost


def _behind(line: SortedKeyList, drifted: float, key: Key) -> Iterator[tuple[Key, Job]]:
    """Those of a line behind a place, the last first, each with its own."""
    for job in reversed(line):
        place = (job.place[0] + drifted, *job.place[1:])
        if place <= key:
            return
        yield place, job
