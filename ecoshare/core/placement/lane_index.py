"""Lanes by what they could still take: where a job could be placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from ecoshare.core.placement.gang_placement import together
from ecoshare.core.records import Job, Key, Lane
from ecoshare.core.states import LaneState

if TYPE_CHECKING:  # policies import what rounds share, and that the room
    from ecoshare.core.policies.base import GangPlacementPolicy

Fits = Callable[[Lane], bool]
"""Whether a job may be started in a lane."""


class LaneIndex:
    """All lanes, ordered so that finding a place looks at few of them.

    Attributes:
        lanes: By number.
        devices: Lanes by the name of their device; `nodes`: by that of its node.
        free: Devices with an empty lane.
    """

    def __init__(self, preference: Callable[[Lane], Key], placing: GangPlacementPolicy | None = None) -> None:
        """`preference` gives the smallest key to the lane that a policy would fill first.

        Args:
            placing: Knows how slow a job is in a lane, which then counts before the preference.
        """
        self.lanes: dict[int, Lane] = {}
        self.devices: dict[str, list[Lane]] = {}
        self.nodes: dict[str, list[Lane]] = {}
        self.free = 0
        self._preference, self._placing = preference, placing
        self._places: SortedList = SortedList()  # (preference, number) of lanes that have a free place
        self._known: dict[int, tuple[Key, int]] = {}
        self._empty: dict[str, dict[str, list[int]]] = {}  # numbers of the empty lanes, by node and device
        self._by_free: list[dict[str, None]] = [{}]  # names of the nodes with so many free devices
        self._limits: tuple[int, int, int] | None = None

    def add(self, lane: Lane) -> None:
        """A lane that is being opened."""
        self.lanes[lane.number] = lane
        self.devices.setdefault(lane.device.name, []).append(lane)
        self.nodes.setdefault(lane.device.node, []).append(lane)
        if lane.device.node not in self._empty:
            self._empty[lane.device.node] = {}
            self._by_free[0][lane.device.node] = None
        self._limits = None

    def opened(self, lane: Lane) -> None:
        """It may take jobs from now on."""
        self._enter(lane)

    def closed(self, _lane: Lane) -> None:
        """It was never opened."""
        self._limits = None

    @property
    def has_places(self) -> bool:
        """Whether any lane has a free place."""
        return bool(self._places)

    def take(self, job: Job) -> None:
        """A job has the places in its `lanes`."""
        for lane in job.lanes:
            self._leave(lane)
            lane.jobs[job.spec.name] = job
            self._enter(lane)

    def give(self, job: Job) -> None:
        """A job has left its places."""
        for lane in job.lanes:
            self._leave(lane)
            del lane.jobs[job.spec.name]
            self._enter(lane)

    def move(self, job: Job, to: Lane) -> Lane:
        """A job of one device has its place in another lane of it now; returns where it was."""
        (before,) = job.lanes
        self.give(job)
        job.lanes = (to,)
        self.take(job)
        return before

    def find(self, job: Job, fits: Fits, kept: Container[int] = ()) -> tuple[Lane, ...]:
        """Lanes for a job, one on each of its devices; empty where there is no room.

        One device: the lane that the policy prefers. A gang has its lanes to itself, and gets them in one node, the
        one with the fewest devices to spare; where it may span several, in those with the most. Where the policy knows
        how slow the job is in each: where it is least slow, and of equal ones the same.

        Args:
            kept: Lanes that are kept for others.
        """
        gpus, nodes = job.spec.gpus, job.spec.nodes
        if self._placing is not None:
            return self._least_slow(job, self._placing, fits, kept)
        if gpus == 1:
            for _, number in self._places:
                lane = self.lanes[number]
                if number not in kept and fits(lane):
                    return (lane,)
            return ()
        if gpus > self.free:
            return ()
        for nodes_of in self._by_free[gpus:]:
            for node in nodes_of:
                if len(found := self._in_node(node, gpus, fits, kept)) == gpus:
                    return tuple(found)
        return self._spread(gpus, nodes, fits, kept) if nodes is None or nodes > 1 else ()

    def emptiest(self, gpus: int, nodes: int | None) -> tuple[Lane, ...]:
        """The lanes that will be free for a job first, if nobody else is let in: those with the fewest jobs."""
        chosen: dict[str, dict[str, Lane]] = {}
        everywhere: dict[str, Lane] = {}
        lanes = [lane for lane in self.lanes.values() if lane.state is LaneState.OPEN]
        for lane in sorted(lanes, key=lambda lane: (len(lane.jobs), lane.number)):
            devices = chosen.setdefault(lane.device.node, {}) if nodes is not None else everywhere
            devices.setdefault(lane.device.name, lane)
            if len(devices) == gpus:
                return tuple(devices.values())
        return ()

    def free_by_node(self) -> Counter[str]:
        """Free devices of each node that has any."""
        return Counter({name: free for free, names in enumerate(self._by_free) if free for name in names})

    def free_lanes(self, nodes: Iterable[str]) -> list[int]:
        """Numbers of the empty lanes of some nodes."""
        return [number for name in nodes for numbers in self._empty[name].values() for number in numbers]

    def limits(self) -> tuple[int, int, int]:
        """Devices of the largest node, devices in all, and bytes of the largest lane, of what can be had at all."""
        if self._limits is None:
            lanes = [lane for lane in self.lanes.values() if lane.state is not LaneState.CLOSED]
            devices = {lane.device.name: lane.device.node for lane in lanes}
            nodes = Counter(devices.values())
            largest_bytes = max((lane.budget_bytes for lane in lanes), default=0)
            self._limits = max(nodes.values(), default=0), len(devices), largest_bytes
        return self._limits

    def _least_slow(self, job: Job, placing: GangPlacementPolicy, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Those that the policy finds least slow for a job, in one node or over several."""
        gpus, nodes = job.spec.gpus, job.spec.nodes
        slowness = partial(placing.slowness, job)
        if gpus == 1:
            free = (self.lanes[number] for _, number in self._places if number not in kept)
            least = min(filter(fits, free), key=slowness, default=None)
            return () if least is None else (least,)
        if gpus > self.free:
            return ()
        within = together(self._in_nodes(self._by_free[gpus:], fits, kept), gpus, 1, slowness)
        if nodes == 1:
            return within
        over = together(self._in_nodes(reversed(self._by_free[1:]), fits, kept), gpus, nodes, slowness)
        if within and max(map(slowness, within)) <= placing.across * max(map(slowness, over)):
            return within
        return over

    def _in_nodes(self, groups: Iterable[dict[str, None]], fits: Fits, kept: Container[int]) -> list[Lane]:
        """An empty lane of each device of some nodes that has one."""
        names = chain.from_iterable(groups)
        return [lane for name in names for lane in self._in_node(name, len(self._empty[name]), fits, kept)]

    def _in_node(self, node: str, gpus: int, fits: Fits, kept: Container[int]) -> list[Lane]:
        """Up to so many empty lanes of a node, on as many devices, those that the policy prefers."""
        lanes = [self.lanes[number] for numbers in self._empty[node].values() for number in numbers]
        found: dict[str, Lane] = {}
        for lane in sorted(lanes, key=lambda lane: self._known[lane.number]):
            if lane.number not in kept and lane.device.name not in found and fits(lane):
                found[lane.device.name] = lane
                if len(found) == gpus:
                    break
        return list(found.values())

    def _spread(self, gpus: int, nodes: int | None, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Over as few nodes as can be: those with the most free devices first."""
        if nodes is not None:  # of those some may be kept for others
            lanes = self._in_nodes(reversed(self._by_free[1:]), fits, kept)
            return together(lanes, gpus, nodes, lambda lane: 0.0)
        found: list[Lane] = []
        names = chain.from_iterable(reversed(self._by_free[1:]))
        for node in names:
            found += self._in_node(node, gpus - len(found), fits, kept)
            if len(found) == gpus:
                return tuple(found)
        return ()

    def _enter(self, lane: Lane) -> None:
        if lane.state is not LaneState.OPEN:
            return
        entry = self._known[lane.number] = (self._preference(lane), lane.number)
        if len(lane.jobs) < lane.places:
            self._places.add(entry)
        if not lane.jobs:
            empty = self._empty[lane.device.node]
            numbers = empty.get(lane.device.name)
            if numbers is None:
                empty[lane.device.name] = [lane.number]
                self._count(lane.device.node, len(empty) - 1, len(empty))
            else:
                numbers.append(lane.number)

    def _leave(self, lane: Lane) -> None:
        if len(lane.jobs) < lane.places:
            self._places.remove(self._known[lane.number])
        if not lane.jobs:
            empty = self._empty[lane.device.node]
            numbers = empty[lane.device.name]
            numbers.remove(lane.number)
            if not numbers:
                del empty[lane.device.name]
                self._count(lane.device.node, len(empty) + 1, len(empty))

    def _count(self, node: str, before: int, now: int) -> None:
        """A node has another number of free devices."""
        del self._by_free[before][node]
        if now == len(self._by_free):
            self._by_free.append({})
        self._by_free[now][node] = None
        self.free += now - before
