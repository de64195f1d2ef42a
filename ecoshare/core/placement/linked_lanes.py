"""Lanes of linked devices: which of the lanes that the policy fills equally soon a job gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ecoshare.core.placement.device_links import DeviceLinks
from ecoshare.core.records import Key, Lane

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
