"""Index of the lanes by their free places, to find the lanes for a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from sortedcontainers import SortedList

from ecoshare.core.placement.linked_lanes import LinkedLanes, nearer, together
from ecoshare.core.policies.base import GangPlacementPolicy
from ecoshare.core.records import Job, Key, Lane, LaneState

Fits = Callable[[Lane], bool]
"""Whether a job may be started in a lane."""

Match = Callable[[Lane], Key]
"""Sort key of a lane with other jobs: the lane with the smallest key fits a job best."""

MOST_COMPARED = 64
"""Most lanes that are compared to find the best fit. A cluster may have thousands in which a job fits."""


def _all_alike(_lane: Lane) -> Key:
    """Key of a search without a best fit."""
    return ()


def _link_key(key: Key) -> Key:
    """Key of a lane by which links are compared: idle devices go before links, and links before the number of jobs."""
    return (*key[:-1], min(key[-1], 1))


class LaneIndex:
    """All lanes, in an order in which a search for a place looks at few of them.

    Attributes:
        lanes: Lanes by their numbers.
        devices: Lanes by the names of their devices.
        nodes: Lanes by the names of their nodes.
        free: Number of devices with an empty lane.
        services: Number of services with a place.
        linked: Choice by the links of the devices; false if there are none.
        differ: Whether the relative speed of any device is known.
    """

    def __init__(self, preference: Callable[[Lane], Key], placing: GangPlacementPolicy | None = None) -> None:
        """Index without lanes.

        Args:
            preference: Key of a lane: the policy fills a lane with the smallest key first. Among equal lanes an empty
                one on the emptiest device goes first, and then the best fit.
            placing: Policy that knows how slow a job is in each lane. Slowness then counts before the preference.
        """
        self.lanes: dict[int, Lane] = {}
        self.devices: dict[str, list[Lane]] = {}
        self.nodes: dict[str, list[Lane]] = {}
        self.free = self.services = 0
        self.linked = LinkedLanes(self.devices)
        self._preference, self._placing = preference, placing
        self._places: SortedList = SortedList()  # (key, number) of lanes that have a free place
        # Key of each lane, after which its number decides: preference, jobs of the lane, jobs of its device.
        self._known: dict[int, tuple[Key, int]] = {}
        self._empty: dict[str, dict[str, list[int]]] = {}  # numbers of the empty lanes, by node and device
        self._by_free: list[dict[str, None]] = [{}]  # names of the nodes, at index n those with n free devices
        self._limits: tuple[int, int, int] | None = None
        self.differ = False

    def add(self, lane: Lane) -> None:
        """Add a lane that is being opened."""
        self.lanes[lane.number] = lane
        self.differ |= bool(lane.device.speeds)
        self.devices.setdefault(lane.device.name, []).append(lane)
        self.linked.add(lane)
        self.nodes.setdefault(lane.device.node, []).append(lane)
        if lane.device.node not in self._empty:
            self._empty[lane.device.node] = {}
            self._by_free[0][lane.device.node] = None
        self._limits = None

    def opened(self, lane: Lane) -> None:
        """Note that a lane is open: it may take jobs from now on."""
        self._enter(lane)

    def closed(self, lane: Lane) -> None:
        """Note that a lane could not be opened, or is about to close: it takes no job any more."""
        self._leave(lane)
        self._limits = None

    @property
    def has_places(self) -> bool:
        """Whether any lane has a free place."""
        return bool(self._places)

    def is_idle(self, device: str) -> bool:
        """Whether no job has a place on a device. A job that moves to another lane has its place until then."""
        return not any(lane.jobs for lane in self.devices[device])

    def placed_jobs(self) -> list[Job]:
        """Jobs that have a place, each once, in the order of the lanes."""
        return list({job.spec.name: job for lane in self.lanes.values() for job in lane.jobs.values()}.values())

    def take(self, job: Job) -> None:
        """Give a job a place in each of its `lanes`."""
        self.services += job.spec.service is not None
        for lane in job.lanes:
            self._leave(lane)
            lane.jobs[job.spec.name] = job
            self._enter(lane)
            self._sort_beside(lane)

    def give(self, job: Job) -> None:
        """Free the places of a job."""
        self.services -= job.spec.service is not None
        for lane in job.lanes:
            self._leave(lane)
            del lane.jobs[job.spec.name]
            self._enter(lane)
            self._sort_beside(lane)

    def move(self, job: Job, to: Lane) -> Lane:
        """Move a job of one device to another lane of the device. Returns the lane where it was."""
        (before,) = job.lanes
        self.give(job)
        job.lanes = (to,)
        self.take(job)
        return before

    def find(self, job: Job, fits: Fits, kept: Container[int] = (), match: Match = _all_alike) -> tuple[Lane, ...]:
        """Lanes for a job, one on each of its devices; empty if there is no room.

        A job of one device gets an empty lane among those that the policy prefers, or else the best fit. Among empty
        lanes, the device with the fewest jobs goes first, and then the device that is fastest for the job's class. A
        gang that takes turns gets lanes with free places. Any other gang has its lanes to itself. It gets them on the
        one node with the fewest free devices that has enough. If no node has enough and the gang may span several, it
        gets the nodes with the most free devices. If the policy knows how slow the job is in each lane, the job gets
        the lanes where it is least slow, and the rules above decide ties. Among equal devices of a node, a gang gets
        those that are linked best, and a job of one device the one that gangs miss least.

        Args:
            job: Job to place.
            fits: Whether the job may be started in a lane.
            kept: Numbers of lanes that are kept for other jobs.
            match: Key of a lane with jobs; the smallest is the best fit. The emptiest lane is the best of equal ones,
                then the lane of the emptiest device.
        """
        gpus, nodes = job.spec.gpus, job.spec.nodes
        if self._placing is not None:
            return self._least_slow(job, self._placing, fits, kept)
        if gpus == 1:
            return self._best(job, fits, kept, match)
        if job.spec.takes_turns:
            return self._with_places(gpus, fits, kept)
        if gpus > self.free:
            return ()
        for nodes_of in self._by_free[gpus:]:
            for node in nodes_of:
                if len(found := self._in_node(node, gpus, fits, kept)) == gpus:
                    return tuple(found)
        return self._spread(gpus, nodes, fits, kept) if nodes is None or nodes > 1 else ()

    def _best(self, job: Job, fits: Fits, kept: Container[int], match: Match) -> tuple[Lane, ...]:
        """Empty lane among those that the policy prefers, on the fastest of the emptiest devices, or the best fit."""
        found: list[Lane] = []
        first: Key = ()  # key of the first lane that was found
        for key, number in self._places:
            lane = self.lanes[number]
            if found and (key[:-2] != first[:-2] or len(found) == MOST_COMPARED):
                break
            if number in kept or not fits(lane):
                continue
            if not lane.jobs and not self.differ:
                return (self.linked.for_one(self._able(fits, kept)),) if self.linked else (lane,)
            if found and not found[0].jobs and key != first:
                break  # empty lanes come first, and of these the lanes of the emptiest devices
            first = first if found else key
            found.append(lane)
        if found and not found[0].jobs:
            return (self._fastest(job, found),)
        return (min(found, key=match),) if found else ()

    def _fastest(self, job: Job, lanes: Sequence[Lane]) -> Lane:
        """Lane of the fastest device for a job, among empty lanes that the policy prefers equally."""
        most = max(lane.device.speed(job.spec.job_class) for lane in lanes)
        fastest = [lane for lane in lanes if lane.device.speed(job.spec.job_class) == most]
        return self.linked.for_one(((), lane) for lane in fastest) if self.linked else fastest[0]

    def _with_places(self, gpus: int, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes with free places, one on each of so many devices of a node; those that the policy prefers go first."""
        nodes: dict[str, dict[str, Lane]] = {}
        for _, number in self._places:
            lane = self.lanes[number]
            if number not in kept and fits(lane):
                found = nodes.setdefault(lane.device.node, {})
                found.setdefault(lane.device.name, lane)
                if len(found) == gpus and not self.linked:
                    return tuple(found.values())
                if len(found) == gpus:
                    able = self._able(fits, kept)
                    here = (each for each in able if each[1].device.node == lane.device.node)
                    return tuple(self.linked.for_gang(here, gpus))
        return ()

    def _able(self, fits: Fits, kept: Container[int]) -> Iterator[tuple[Key, Lane]]:
        """Lanes that a job may have, in the order in which the policy fills them, each after its `_link_key`."""
        for key, number in self._places:
            if number not in kept and fits(self.lanes[number]):
                yield _link_key(key), self.lanes[number]

    def spare_first(self) -> Iterable[str]:
        """Names of all devices; with links, the empty ones first, of which those go first that gangs miss least."""
        return self.linked.spare_first() if self.linked else self.devices

    def emptiest(self, gpus: int, nodes: int | None) -> tuple[Lane, ...]:
        """Lanes that will be free first if no other job is let in: those with the fewest jobs; empty if too few exist.

        Args:
            gpus: Number of devices that the job needs.
            nodes: None if the lanes may lie on any nodes; with a number they lie on one node.
        """
        chosen: dict[str, dict[str, Lane]] = {}
        everywhere: dict[str, Lane] = {}
        lanes = [lane for lane in self.lanes.values() if lane.state is LaneState.OPEN]
        for lane in sorted(lanes, key=lambda lane: (len(lane.jobs), lane.number)):
            devices = chosen.setdefault(lane.device.node, {}) if nodes is not None else everywhere
            devices.setdefault(lane.device.name, lane)
            if len(devices) == gpus:
                return tuple(devices.values())
        return ()

    def beside(self, lanes: Iterable[Lane]) -> Iterator[int]:
        """Numbers of all lanes of the devices of these lanes."""
        return (each.number for lane in lanes for each in self.devices[lane.device.name])

    def free_by_node(self) -> Counter[str]:
        """Number of free devices of each node that has any."""
        return Counter({name: free for free, names in enumerate(self._by_free) if free for name in names})

    def free_lanes(self, nodes: Iterable[str]) -> list[int]:
        """Numbers of the empty lanes of these nodes."""
        return [number for name in nodes for numbers in self._empty[name].values() for number in numbers]

    def limits(self) -> tuple[int, int, int]:
        """Number of devices of the largest node, number of all devices, and bytes of the largest device.

        Closed lanes do not count.
        """
        if self._limits is None:
            lanes = [lane for lane in self.lanes.values() if lane.state is not LaneState.CLOSED]
            devices = {lane.device.name: lane.device.node for lane in lanes}
            nodes = Counter(devices.values())
            largest_bytes = max((lane.device.memory_bytes for lane in lanes), default=0)
            self._limits = max(nodes.values(), default=0), len(devices), largest_bytes
        return self._limits

    def _least_slow(self, job: Job, placing: GangPlacementPolicy, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes that are least slow for a job, in one node or over several."""
        gpus, nodes = job.spec.gpus, job.spec.nodes
        slowness = partial(placing.slowness, job)
        if gpus == 1:
            free = (self.lanes[number] for _, number in self._places if number not in kept)
            least = min(filter(fits, free), key=slowness, default=None)
            return () if least is None else (least,)
        if gpus > self.free:
            return ()
        linked = self.linked
        within = together(self._in_nodes(self._by_free[gpus:], fits, kept), gpus, 1, slowness, linked)
        if nodes == 1:
            return within
        over = together(self._in_nodes(reversed(self._by_free[1:]), fits, kept), gpus, nodes, slowness, linked)
        return nearer(within, over, slowness, placing.across)

    def _in_nodes(self, groups: Iterable[dict[str, None]], fits: Fits, kept: Container[int]) -> list[Lane]:
        """One empty lane of each device that has one, on the nodes of these groups."""
        names = chain.from_iterable(groups)
        return [lane for name in names for lane in self._in_node(name, len(self._empty[name]), fits, kept)]

    def _in_node(self, node: str, gpus: int, fits: Fits, kept: Container[int]) -> list[Lane]:
        """At most `gpus` empty lanes of a node, each on another device; the lanes that the policy prefers."""
        lanes = [self.lanes[number] for numbers in self._empty[node].values() for number in numbers]
        lanes.sort(key=lambda lane: self._known[lane.number])
        if self.linked:
            able = (each for each in lanes if each.number not in kept and fits(each))
            return self.linked.for_gang(((_link_key(self._known[each.number][0]), each) for each in able), gpus)
        found: dict[str, Lane] = {}
        for lane in lanes:
            if lane.number not in kept and lane.device.name not in found and fits(lane):
                found[lane.device.name] = lane
                if len(found) == gpus:
                    break
        return list(found.values())

    def _spread(self, gpus: int, nodes: int | None, fits: Fits, kept: Container[int]) -> tuple[Lane, ...]:
        """Lanes on as few nodes as possible: the nodes with the most free devices first."""
        if nodes is not None:  # some of the free lanes may be kept for other jobs
            lanes = self._in_nodes(reversed(self._by_free[1:]), fits, kept)
            return together(lanes, gpus, nodes, lambda lane: 0.0, self.linked)
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
        key = (*self._preference(lane), len(lane.jobs), self._jobs_on(lane))
        entry = self._known[lane.number] = (key, lane.number)
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
        if lane.state is not LaneState.OPEN:
            return
        if len(lane.jobs) < lane.places:
            self._places.remove(self._known[lane.number])
        if not lane.jobs:
            empty = self._empty[lane.device.node]
            numbers = empty[lane.device.name]
            numbers.remove(lane.number)
            if not numbers:
                del empty[lane.device.name]
                self._count(lane.device.node, len(empty) + 1, len(empty))

    def _jobs_on(self, lane: Lane) -> int:
        """Number of jobs in all lanes of the device of a lane; 0 in a run on one device, where it decides nothing."""
        lanes = self.devices[lane.device.name]
        if len(lanes) == 1:
            return len(lane.jobs)
        return sum(len(each.jobs) for each in lanes) if len(self.devices) > 1 else 0

    def _sort_beside(self, lane: Lane) -> None:
        """Sort the other lanes of a device again, after the number of jobs of a lane has changed."""
        lanes = self.devices[lane.device.name]
        if len(lanes) == 1 or len(self.devices) == 1:
            return
        on_device = self._jobs_on(lane)
        for each in lanes:
            if each is lane or each.state is not LaneState.OPEN:
                continue
            before = self._known[each.number]
            entry = self._known[each.number] = ((*before[0][:-1], on_device), each.number)
            if len(each.jobs) < each.places:
                self._places.remove(before)
                self._places.add(entry)

    def _count(self, node: str, before: int, now: int) -> None:
        """Note a changed number of free devices of a node."""
        del self._by_free[before][node]
        if now == len(self._by_free):
            self._by_free.append({})
        self._by_free[now][node] = None
        self.free += now - before
