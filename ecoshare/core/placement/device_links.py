"""Links of the devices: which free devices a gang gets, and which one a job of one device leaves alone.

::

    cuda:0 ══ cuda:1      a job of one device is on cuda:0
      │         │         the next one goes to cuda:1, which has lost its partner already
    cuda:2 ══ cuda:3      a gang of two then gets cuda:2 and cuda:3

In every iteration a gang exchanges its gradients, and the slowest link sets the time. So the least nearness inside the
set counts first, then the sum over all pairs. The order in which the devices are offered decides ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from ecoshare.values.device import Device

MOST_SETS = 20_000
"""Most sets of devices that are searched for the best one; C(16, 8) is 12,870. Otherwise the set is grown greedily."""

MOST_GROWN = 64
"""Most devices from which a set is grown greedily: the time grows with their cube."""


class DeviceLinks:
    """Nearness (`values/nearness.py`) of the devices of a run to each other. False if no device has links."""

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
