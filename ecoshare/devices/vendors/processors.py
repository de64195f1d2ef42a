"""The processors of a machine as one device: RAPL counts their joules, and the kernel offers caps as knobs."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshare.base import machine_memory
from ecoshare.base.device import PROCESSORS, DeviceInfo
from ecoshare.devices import meter
from ecoshare.devices.choice import partition_nearness
from ecoshare.devices.cpu_knobs import CpuKnobs
from ecoshare.devices.memory_transfer import NoMemoryTransfer
from ecoshare.devices.meter import MeterFault, PowerModel
from ecoshare.devices.rapl_meter import RaplMeter
from ecoshare.devices.torch_build import TorchBuild
from ecoshare.devices.vendor import ContextSharing, DeviceHealth, DeviceState

SHARE = 0.8
"""Share of the available memory that a run may use. The rest is for the page cache and for other programs."""


@dataclass(frozen=True, slots=True)
class OpenProcessors:
    """The processors as they are read: a meter, and no state beside it.

    Attributes:
        is_partition: Whether they are a part of the processors only.
    """

    is_partition: bool = False

    def open_meter(self) -> RaplMeter:
        """Meter of all packages and their memory.

        Raises:
            MeterFault: There are no counters, this user may not read them, or they count more than this partition.
        """
        if self.is_partition:
            raise MeterFault("the counters of the processors count all partitions together")
        meter = RaplMeter()
        meter.open()
        return meter

    def state(self) -> DeviceState | None:
        """None: clocks differ from core to core, and the kernel counts the time of each job."""
        return None

    def health(self) -> DeviceHealth:
        """Healthy: this program runs on them."""
        return DeviceHealth()

    def processes(self) -> dict[int, int]:
        """Empty: the memory of jobs is that of their processes."""
        return {}

    def power_limit_w(self) -> float | None:
        """None: a limit of a package is a knob, and no part of a profile."""
        return None

    def close(self) -> None:
        """Do nothing: no file is held open."""


class Processors:
    """Vendor of the processors."""

    name = kind = PROCESSORS
    precedence = 9
    modules = ()

    def visible(self) -> list[DeviceInfo]:
        """Processors and memory that this process may use, as one device."""
        cores = len(os.sched_getaffinity(0))
        return [
            DeviceInfo(
                "cpu", PROCESSORS, PROCESSORS, _model(), None, int(machine_memory.available_bytes() * SHARE), cores
            )
        ]

    def environment(self, devices: Sequence[DeviceInfo]) -> dict[str, str | None]:
        """Variables that hide every GPU."""
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}

    def nearness(self, devices: Sequence[DeviceInfo]) -> dict[tuple[str, str], int]:
        """Nearness of partitions by their NUMA nodes; empty on a machine with one node, where all are equally near."""
        found = partition_nearness([each.processors for each in devices])
        return {(devices[one].name, devices[other].name): near for (one, other), near in found.items()}

    def share_contexts(
        self, devices: Sequence[DeviceInfo], lanes: int, places: int, folder: Path, environment: Mapping[str, str]
    ) -> ContextSharing:
        """No service: the kernel shares the processors."""
        return ContextSharing("no GPU")

    def check_torch(self, devices: Sequence[DeviceInfo], build: TorchBuild) -> None:
        """Every build of torch uses the processors."""

    def memory_transfer(self, device: DeviceInfo, environment: Mapping[str, str]) -> NoMemoryTransfer:
        """No transfer from outside: a job that waits pages itself out."""
        return NoMemoryTransfer()

    def power_model(self, device: DeviceInfo) -> PowerModel | None:
        """Power model of so many virtual cores."""
        return meter.processors_power_model(device.cores)

    def open_knobs(self, key: str) -> CpuKnobs:
        """Knobs of this machine's processors, whatever their key."""
        return CpuKnobs()

    def open(self, device: DeviceInfo) -> OpenProcessors:
        """The processors, to read them."""
        return OpenProcessors(is_partition=bool(device.processors))


VENDOR = Processors()


def _model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
