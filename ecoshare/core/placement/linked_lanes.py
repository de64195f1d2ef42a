"""Lanes for gangs: on devices that are linked well, or of equal speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, combinations, islice

from ecoshare.base.device import Device
from ecoshare.core.records import Key, Lane

MOST_SETS = 20_000
"""Most sets of devices that are searched for the best one; C(16, 8) is 12,870. Otherwise the set is grown greedily."""

MOST_GROWN = 64
"""Most devices from which a set is grown greedily: the time grows with their cube."""


class DeviceLinks:
    """Nearness (`base/device.py`) of the devices of a run to each other. False if no device has links.

    ::

        cuda:0 ══ cuda:1      a job of one device is on cuda:0
          │         │         the next one goes to cuda:1, which has lost its partner already
        cuda:2 ══ cuda:3      a gang of two then gets cuda:2 and cuda:3

    In every iteration a gang exchanges its gradients, and the slowest link sets the time. So the least nearness inside
    the set counts first, then the sum over all pairs. The order in which the devices are offered decides ties.
    """

    def __init__(self) -> None:
        """No device is linked to another."""
        self._near: dict[str, dict[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._near)

    def add(self, device: Device) -> None:
        """Add the links of a device. A link that one of two devices names holds for both."""
        for other, nearness in device.links:
            for one, to in ((device.name, other), (other, device.name)):
                near = self._near.setdefault(one, {})
                near[to] = max(nearness, near.get(to, 0))

    def between(self, one: str, other: str) -> int:
        """Nearness of two devices; 0 if it is not known."""
        return self._near.get(one, {}).get(other, 0)

    def nearest(self, fixed: Sequence[str], free: Sequence[str], count: int) -> list[str]:
        """Devices to add to `fixed`, so that all together are linked best; the earliest of equally good sets.

        Args:
            fixed: Devices that the gang has in any case.
            free: Devices to choose from, the most preferred first.
            count: Number of devices to choose, at most the number of free ones.
        """
        if count == len(free) or not any(self._near.get(name) for name in free):
            return list(free[:count])
        if math.comb(len(free), count) <= MOST_SETS:
            return _Search(self, free, count).best(list(fixed))
        return self._grown(fixed, free[: max(count, MOST_GROWN)], count)

    def most_spare(self, free: Sequence[str]) -> list[str]:
        """The same devices, in the order in which jobs of one device take them.

        A device goes first if its nearest device in `free` is farther than that of the others: its partners are busy
        already. Then the sum of its nearness to all of them counts, and then the order of `free`.
        """
        if not self._near:
            return list(free)
        near = {name: [self.between(name, other) for other in free if other != name] for name in free}
        return sorted(free, key=lambda name: (max(near[name], default=0), sum(near[name])))

    def _grown(self, fixed: Sequence[str], free: Sequence[str], count: int) -> list[str]:
        """Best of the sets that grow from each free device, by the device that is linked best to those before it."""
        best: tuple[float, int] = (-1, -1)
        found: list[str] = []
        inside = self.least(fixed)
        for seed in free:
            near = {name: self.quality(name, fixed) for name in free}
            chosen, (least, total) = [seed], near.pop(seed)
            least = min(inside, least)
            while len(chosen) < count:
                for name, (its_least, its_sum) in near.items():
                    nearness = self.between(name, chosen[-1])
                    near[name] = min(its_least, nearness), its_sum + nearness
                chosen.append(max(near, key=near.__getitem__))
                its_least, its_sum = near.pop(chosen[-1])
                least, total = min(least, its_least), total + its_sum
            if (least, total) > best:
                best, found = (least, total), chosen
        return sorted(found, key=free.index)

    def least(self, names: Sequence[str]) -> float:
        """Least nearness of two of these devices; infinite for fewer than two."""
        return min((self.between(one, other) for one, other in combinations(names, 2)), default=math.inf)

    def quality(self, name: str, others: Sequence[str]) -> tuple[float, int]:
        """Least nearness of a device to others, and the sum."""
        near = [self.between(name, other) for other in others]
        return min(near, default=math.inf), sum(near)


class _Search:
    """Search of all sets in the order of the devices. Branches that cannot beat the best set so far are left out."""

    def __init__(self, links: DeviceLinks, free: Sequence[str], count: int) -> None:
        self._links, self._free, self._count = links, free, count
        self._best: list[str] = []
        self._quality: tuple[float, int] = (-1, -1)
        self._most = 0

    def best(self, fixed: list[str]) -> list[str]:
        """Best set beside these devices, without them."""
        near = self._links.between
        names = [*fixed, *self._free]
        self._most = max(near(one, other) for one in names for other in names if one != other)
        self._extend(fixed, len(fixed) + self._count, 0, self._links.least(fixed), 0)
        return self._best[len(fixed) :]

    def _extend(self, chosen: list[str], size: int, first: int, least: float, total: int) -> None:
        """Try every set that begins with `chosen`.

        Args:
            chosen: Devices so far.
            size: Number of devices of a whole set.
            first: Place of the first free device that may come next.
            least: Least nearness of two devices of `chosen`.
            total: Sum of nearness over the pairs with a chosen free device.
        """
        missing = size - len(chosen)
        if not missing:
            if (least, total) > self._quality:
                self._best, self._quality = chosen, (least, total)
            return
        pairs = math.comb(size, 2) - math.comb(len(chosen), 2)
        if (least, total + pairs * self._most) <= self._quality:
            return
        for place in range(first, len(self._free) - missing + 1):
            its_least, its_sum = self._links.quality(self._free[place], chosen)
            self._extend([*chosen, self._free[place]], size, place + 1, min(least, its_least), total + its_sum)


Able = tuple[Key, Lane]
"""Lane that a job may have, after the key by which the policy fills it.

Keys include the number of jobs of the lane, and whether its device is idle.
"""


class LinkedLanes:
    """Choice of lanes by the links of their devices. False if no device has links: nothing is to be chosen then."""

    def __init__(self, devices: Mapping[str, Sequence[Lane]]) -> None:
        """Choice without links.

        Args:
            devices: Lanes by the names of their devices, which the caller keeps up to date.
        """
        self._links, self._devices = DeviceLinks(), devices

    def __bool__(self) -> bool:
        return bool(self._links)

    def add(self, lane: Lane) -> None:
        """Add the links of a lane's device."""
        self._links.add(lane.device)

    def for_gang(self, able: Iterable[Able], gpus: int) -> list[Lane]:
        """Lanes for a gang, each on another device: the first `gpus`, and among equals those that are linked best.

        Args:
            able: Lanes of one node, in the order in which the policy fills them. Fewer devices give fewer lanes.
            gpus: Number of lanes to choose.
        """
        found: dict[str, Able] = {}
        last: Key | None = None
        for key, lane in able:
            if last is not None and key != last:
                break
            found.setdefault(lane.device.name, (key, lane))
            if last is None and len(found) == gpus:
                last = key
        first = [name for name, (key, _) in found.items() if key != last]
        equal = [name for name, (key, _) in found.items() if key == last]
        chosen = self._links.nearest(first, equal, gpus - len(first)) if last is not None else []
        return [found[name][1] for name in (*first, *chosen)]

    def nearest(self, lanes: Sequence[Lane], gpus: int) -> tuple[Lane, ...]:
        """Lanes that are linked best, of lanes on different devices; the earliest of equally good sets."""
        lane_of = {lane.device.name: lane for lane in lanes}
        return tuple(lane_of[name] for name in self._links.nearest((), list(lane_of), gpus))

    def for_one(self, able: Iterable[Able]) -> Lane:
        """Lane for a job of one device: the first one; if its device is empty, the most spare of the empty devices.

        Args:
            able: Empty lanes, in the order in which the policy fills them, at least one.
        """
        lanes = iter(able)
        key, first = next(lanes)
        if not self._is_empty(first.device.name):
            return first
        equal = {first.device.name: first}
        for other, lane in lanes:
            if other != key:
                break
            if lane.device.node == first.device.node and self._is_empty(lane.device.name):
                equal.setdefault(lane.device.name, lane)
        empty = [name for name in self._devices if self._is_empty(name)]
        return next(equal[name] for name in self._links.most_spare(empty) if name in equal)

    def spare_first(self) -> Iterator[str]:
        """Names of all devices, the empty ones first, of which those go first that gangs miss least."""
        empty = [name for name in self._devices if self._is_empty(name)]
        yield from self._links.most_spare(empty)
        yield from (name for name in self._devices if name not in empty)

    def _is_empty(self, device: str) -> bool:
        return not any(lane.jobs for lane in self._devices[device])


def together(
    lanes: Iterable[Lane],
    gpus: int,
    nodes: int | None,
    slowness: Callable[[Lane], float],
    linked: LinkedLanes | None = None,
) -> tuple[Lane, ...]:
    """Choose the lanes of a gang so that the slowest of them is as little slow as possible; empty if too few exist.

    The bound on slowness rises lane by lane until the nodes with the most lanes below it have enough. No other choice
    has a lower bound. The fewest nodes are used. Lanes of one node that are linked best win ties, then earlier lanes.

    Args:
        lanes: Lanes to choose from, each on a device of its own.
        gpus: Number of lanes to choose.
        nodes: Most nodes that the lanes may span; None for any number.
        slowness: Time of the gang in a lane / time on a typical device.
        linked: Choice by the links of the devices; None for a choice without it.
    """
    below: dict[str, list[Lane]] = {}
    ordered = sorted(lanes, key=slowness)
    for count, lane in enumerate(ordered, 1):
        below.setdefault(lane.device.node, []).append(lane)
        if count >= gpus:
            fullest = nlargest(nodes or len(below), below.values(), key=len)
            if linked and len(fullest[0]) >= gpus:
                node, bound = fullest[0][0].device.node, slowness(lane)
                able = [each for each in ordered if each.device.node == node and slowness(each) <= bound]
                return linked.nearest(able, gpus)
            if sum(map(len, fullest)) >= gpus:
                return tuple(islice(chain.from_iterable(fullest), gpus))
    return ()


def nearer(
    within: tuple[Lane, ...], over: tuple[Lane, ...], slowness: Callable[[Lane], float], across: float
) -> tuple[Lane, ...]:
    """Lanes in one node, unless those over several nodes are less slow although the gang spans nodes there.

    Args:
        within: Lanes in one node; empty if too few exist.
        over: Lanes over any nodes.
        slowness: Time of the gang in a lane / time on a typical device.
        across: Slowness of a gang over several nodes / slowness in one node.
    """
    return within if within and max(map(slowness, within)) <= across * max(map(slowness, over)) else over
