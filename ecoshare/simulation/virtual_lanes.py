"""Lanes and devices of a simulation. A change of a holder changes the power of its device and the speeds there."""

from __future__ import annotations

import math
from collections.abc import Callable

from ecoshare.simulation.coming_events import What
from ecoshare.simulation.simulated_attempt import SimulatedAttempt
from ecoshare.simulation.usage_integrals import UsageIntegrals
from ecoshare.simulation.virtual_device import VirtualDevice
from ecoshare.simulation.virtual_lane import VirtualLane
from ecoshare.simulation.world import Truth
from ecoshare.values.measurement import Setting


class VirtualLanes:
    """All lanes, each on its device.

    Attributes:
        lanes: Lanes by number.
        devices: Devices by name.
        watches: Whether the progress of a job is reported because of its neighbours in other lanes.
    """

    def __init__(
        self, world: Truth, account: UsageIntegrals, feels_neighbours: bool, push: Callable[[float, What, object], None]
    ) -> None:
        """No lane is open yet.

        Args:
            world: Speeds and watts.
            account: Integrals to which changes of power are added.
            feels_neighbours: Whether speeds change with the jobs at work, the setting or the time.
            push: Adds a coming event.
        """
        self.lanes: dict[int, VirtualLane] = {}
        self.devices: dict[str, VirtualDevice] = {}
        self.watches = False
        self._device_of: dict[int, VirtualDevice] = {}
        self._world, self._account, self._push = world, account, push
        self._feels_neighbours = feels_neighbours

    def open(self, number: int, device_name: str, lane: VirtualLane) -> None:
        """Add a lane to a device."""
        self.lanes[number] = lane
        device = self.devices.setdefault(device_name, VirtualDevice(device_name))
        device.lanes.append(number)
        self._device_of[number] = device

    def of(self, seat: SimulatedAttempt) -> VirtualLane:
        """Lane in which an attempt takes turns: the first one of a job with several."""
        return self.lanes[seat.lanes[0]]

    def join(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Let an attempt join its lane."""
        lane = self.of(seat)
        before, seat.speed = lane.holder, self._speed(seat, now_s)
        lane.join(seat, now_s)
        self.changed(lane, now_s, before)

    def leave(self, seat: SimulatedAttempt, now_s: float) -> None:
        """Let an attempt leave its lane."""
        lane = self.of(seat)
        before = lane.holder
        lane.leave(seat.job.name, now_s)
        self.changed(lane, now_s, before)

    def reserve(self, seat: SimulatedAttempt, only: str | None, now_s: float) -> VirtualDevice:
        """Restrict turns on the device of an attempt to one job, to no job (empty), or to all jobs (None)."""
        device = self._device_of[seat.lanes[0]]
        for number in device.lanes:
            lane = self.lanes[number]
            before = lane.holder
            lane.reserve(only if not only or number in seat.lanes else "", now_s)
            self.changed(lane, now_s, before)
        return device

    def beside(self, seat: SimulatedAttempt) -> list[SimulatedAttempt]:
        """Attempts at work in other lanes of the devices of an attempt."""
        return [other for number in seat.lanes for other in self._device_of[number].others(seat.lanes)]

    def changed(self, lane: VirtualLane, now_s: float, before: SimulatedAttempt | None) -> None:
        """Update the devices of a lane after a change of its holder, and plan the next event of the lane.

        Args:
            before: Attempt that held the turn before the change; None for none.
        """
        holder = lane.holder
        if holder is not before:
            touched: dict[str, VirtualDevice] = {}
            if before is not None:
                for number in before.lanes:
                    device = self._device_of[number]
                    touched[device.name] = device
                    del device.at_work[number]
            if holder is not None:
                for number in holder.lanes:
                    device = self._device_of[number]
                    touched[device.name] = device
                    device.at_work[number] = holder
            for device in touched.values():
                self.feel(device, now_s)
        self.plan(lane)

    def feel(self, device: VirtualDevice, now_s: float) -> None:
        """Update the power of a device and the speeds of the jobs at work on it."""
        busy, watts, seats = device.busy, device.watts, device.seats
        device.watts = self._world.device_watts([seat.job for seat in seats], device.name, device.setting, now_s)
        device.busy = bool(seats)
        self._account.work(device.busy - busy, device.watts - watts, now_s)
        for seat in seats if self._feels_neighbours else ():
            lane = self.of(seat)
            lane.set_speed(self._speed(seat, now_s), now_s)
            if self.watches:
                lane.watch(len(device.at_work) > 1, now_s)
            self.plan(lane)

    def plan(self, lane: VirtualLane) -> None:
        """Schedule the next event of a lane, if it has changed."""
        if lane.version != lane.planned:
            lane.planned = lane.version
            if lane.next_s < math.inf:
                self._push(lane.next_s, What.LANE, (lane, lane.version))

    def apply(self, device_name: str, setting: Setting, now_s: float) -> None:
        """Put a setting of a device in force."""
        device = self.devices[device_name]
        device.setting = setting
        self.feel(device, now_s)

    def _speed(self, seat: SimulatedAttempt, now_s: float) -> float:
        devices = [self._device_of[number] for number in seat.lanes]
        names = [device.name for device in devices]
        return self._world.speed(seat.job, names, [each.job for each in self.beside(seat)], devices[0].setting, now_s)
