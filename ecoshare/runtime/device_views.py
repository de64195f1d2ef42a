"""Present state of the devices of a run, for displays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ecoshare.core.scheduler import Scheduler
from ecoshare.record.live_energy import LiveEnergy
from ecoshare.record.run_view import DeviceView, LaneView
from ecoshare.runtime.node_readings import NodeReadings
from ecoshare.values.device import DeviceInfo


@dataclass(frozen=True, slots=True)
class DeviceViews:
    """Reads the devices of a run.

    Attributes:
        core: Scheduler of the run.
        devices: The devices.
        node: Readings of the machine of the run.
        energy: Joules so far.
    """

    core: Scheduler
    devices: Sequence[DeviceInfo]
    node: NodeReadings
    energy: LiveEnergy

    def present(self) -> tuple[DeviceView, ...]:
        """State of each device now, in the order of the plan."""
        return tuple(map(self._view, self.devices))

    def _view(self, device: DeviceInfo) -> DeviceView:
        now, reading = self.node.device(device.name), self.energy.device(device.name)
        sample = reading.sample if reading is not None else None
        lanes = tuple(
            LaneView(number, tuple(self.core.lanes[number].jobs), lane.holder)
            for number, lane in sorted(now.lanes.items())
            if number in self.core.lanes  # a segment of the log has no lanes of failed devices
        )
        return DeviceView(
            name=device.name,
            described=device.described,
            lanes=lanes,
            memory_total_bytes=device.memory_bytes,
            failed=now.failed,
            setting=now.setting,
            power_w=reading.power_w if reading is not None else None,
            energy_j=reading.energy_j if reading is not None else None,
            energy_source=reading.source if reading is not None else "",
            gpu_clock_mhz=sample.gpu_clock_mhz if sample is not None else None,
            memory_clock_mhz=sample.memory_clock_mhz if sample is not None else None,
            temperature_c=sample.temperature_c if sample is not None else None,
            busy=sample.busy if sample is not None else None,
            memory_bytes=sample.in_use_bytes if sample is not None else None,
        )
