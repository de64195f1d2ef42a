"""Protocols of a vendor and of an open device: all that ecoshare asks of the devices of a machine.

::

    registry ──► Vendor ──┬── visible()        identity, memory
                          ├── environment()    variables that show a job its devices alone
                          ├── nearness()       how two devices are linked
                          ├── share_contexts() how processes use them at the same moment
                          ├── check_torch()    whether the torch of jobs can use them
                          ├── memory_transfer() ──► MemoryTransfer: moves memory to the host and back
                          ├── power_model()    watts for a device without a meter
                          ├── open_knobs()     ──► Knobs: what can be set (devices/knob.py)
                          └── open()           ──► OpenDevice ──┬── open_meter() ──► Meter: joules (devices/meter.py)
                                                                ├── state(), health(), processes(), power_limit_w()
                                                                └── close()

docs/devices.md shows how a vendor is added: one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ecoshare.base.device import DeviceInfo
from ecoshare.devices.knob import Knobs
from ecoshare.devices.memory_transfer import MemoryTransfer
from ecoshare.devices.meter import Meter, PowerModel
from ecoshare.devices.torch_build import TorchBuild


@dataclass(frozen=True, slots=True)
class ContextSharing:
    """How the jobs of parallel lanes use a device at the same moment.

    Attributes:
        evidence: The decision and its reason, for the record of the run.
        is_shared: Whether all jobs share one context. Then the unclean death of one job may corrupt its neighbours.
        environment: Variables that make the jobs clients of the service; empty without one.
        behind: Variables that let the work of a job wait for that of others on the device, as far as the service can.
        end: Ends a service that was started for this run. All jobs must have ended.
    """

    evidence: str
    is_shared: bool = False
    environment: dict[str, str | None] = field(default_factory=dict)
    behind: dict[str, str | None] = field(default_factory=dict)
    end: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """State of a device at one moment. A value that the device does not report is None.

    Attributes:
        power_w: Present power draw (W), which the board averages over a window of its own.
        busy: Share in [0, 1] of the driver's last sample period (1 s or less) in which a kernel ran.
        memory_busy: Share in [0, 1] of that period in which device memory was read or written.
        memory_bytes: Device memory in use.
    """

    power_w: float | None = None
    gpu_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    busy: float | None = None
    memory_busy: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """Health of a device since it was opened.

    Attributes:
        failure: Reason, in words, why jobs can no longer use the device; empty if they can.
        note: Fact, in words, that the owner of the device should know; empty without one.
    """

    failure: str = ""
    note: str = ""


class OpenDevice(Protocol):
    """One device that is read repeatedly."""

    def open_meter(self) -> Meter:
        """Meter that measures the joules of the device, open and ready to be read.

        Raises:
            MeterFault: The device has no meter that can be read.
        """
        ...

    def state(self) -> DeviceState | None:
        """Present state; None for a device that has none to report."""
        ...

    def processes(self) -> dict[int, int]:
        """Device memory (bytes) of each process on the device, as far as it is reported; empty for processors."""
        ...

    def health(self) -> DeviceHealth:
        """Whether the device still works. An answer that the driver does not give is no failure."""
        ...

    def power_limit_w(self) -> float | None:
        """Power limit (W) in force, no matter which program set it; None if the device has or reports none."""
        ...

    def close(self) -> None:
        """Release the device."""
        ...


class Vendor(Protocol):
    """All devices of one vendor. Each module of `devices/vendors/` defines one, as `VENDOR`.

    Attributes:
        name: Name of the vendor, which plans and journals keep.
        kind: Device type in torch: `cpu` or `cuda`.
        precedence: Order of the vendors: the smallest with a visible device gives the default device.
        modules: Modules that setting a device needs. The guard imports them early, for a clean-up without delay.
    """

    name: str
    kind: str
    precedence: int
    modules: tuple[str, ...]

    def visible(self) -> list[DeviceInfo]:
        """Devices that this process may use, in torch's order; empty without a driver, which is no error.

        Raises:
            UnfitEnvironment: The driver fails, or an environment variable names what ecoshare cannot share.
        """
        ...

    def environment(self, devices: Sequence[DeviceInfo]) -> dict[str, str | None]:
        """Variables that make only these devices visible to a job, in this order; None takes a variable out."""
        ...

    def nearness(self, devices: Sequence[DeviceInfo]) -> Mapping[tuple[str, str], int]:
        """Nearness (`base/device.py`) of pairs of these devices, by their names; without unknown pairs.

        Raises:
            UnfitEnvironment: The driver fails. A link that it does not tell is no failure.
        """
        ...

    def share_contexts(
        self, devices: Sequence[DeviceInfo], lanes: int, places: int, folder: Path, environment: Mapping[str, str]
    ) -> ContextSharing:
        """Decide how the jobs of parallel lanes use a device at the same moment.

        Args:
            devices: All devices of the run.
            lanes: Number of lanes on each device.
            places: Most jobs in a lane.
            folder: Folder of the run for sockets.
            environment: Environment of a service that is started for it.

        Raises:
            UnfitEnvironment: A device admits one process, and there is no service that shares it.
        """
        ...

    def check_torch(self, devices: Sequence[DeviceInfo], build: TorchBuild) -> None:
        """Check, before the first job starts, that the torch of jobs can use these devices.

        Raises:
            UnfitEnvironment: It cannot use one of them. The message says why, and the hint what would help.
        """
        ...

    def memory_transfer(self, device: DeviceInfo, environment: Mapping[str, str]) -> MemoryTransfer:
        """Transfer that gives the device memory of a job that waits to the host, and back before its next turn.

        Args:
            device: The device.
            environment: Environment of processes that are started for it.

        Raises:
            UnfitEnvironment: The memory of jobs on this device cannot be moved.
        """
        ...

    def power_model(self, device: DeviceInfo) -> PowerModel | None:
        """Power model of an idle device, for use without a meter; None if its watts are not known.

        Raises:
            UnfitEnvironment: The driver fails.
        """
        ...

    def open_knobs(self, key: str) -> Knobs:
        """Open the knobs of the device with this key.

        Raises:
            UnfitEnvironment: The device is not there, or does not answer.
        """
        ...

    def open(self, device: DeviceInfo) -> OpenDevice:
        """Open a device to read it.

        Raises:
            UnfitEnvironment: The device is not there, or does not answer.
        """
        ...
