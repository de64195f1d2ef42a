"""A device of this machine that jobs can share.

Nearness of two devices: how their data get from one to the other, as a small integer. Larger is nearer.

| nearness | data go |
|---|---|
| 0 | a way that the driver does not tell |
| 1 | from one NUMA node to another |
| 2 | inside one NUMA node |
| 3 | through one host bridge of the processors |
| 4 | through several PCIe switches |
| 5 | through one PCIe switch |
| 6 | inside one board |
| 7 | over AMD's XGMI links |
| 10 + n | over n NVLinks; with NVSwitch n is the number of links from a device to the switches |

Levels 1 to 6 are those of `nvmlDeviceGetTopologyCommonAncestor`, in the opposite order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

PROCESSORS = "cpu"
"""Kind of the processors, which is their name in torch, too. Every other kind is an accelerator's."""

Speeds = tuple[tuple[str, float], ...]
"""Relative speed of a device for each job class; see `Device.speeds`."""

SPEED_COLUMNS = ("device", "class", "speed")
"""Columns of a file with such speeds, for `ecoshare simulate --calibration`."""

LOCAL = "local"
"""Name of the machine of a run that has one only."""

NODE_TIMEOUT_S = 15.0
"""Default time (s) without a message of a node after which it counts as lost."""

LEAST_NODE_TIMEOUT_S = 5.0
"""Shortest such time (s): a busy machine may send nothing for some seconds."""

_NOT_IN_JSON = ("total_bytes", "free_bytes", "unfit", "cuda", "capability")
"""Fields that describe one moment, or hold only before a run begins."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Identity of a device, and how much of its memory a run may use.

    Attributes:
        name: `cpu`, `cuda:N`, or `cpu:N` for a partition of the processors. N counts the GPUs that are visible here, in
            the driver's order, or the partitions.
        kind: Device type in torch: `cpu` or `cuda`. AMD GPUs are `cuda`, too.
        vendor: Name of the vendor: a module in `ecoshare/devices/vendors/` reads and sets the device.
        model: Name that the maker gives the device.
        uuid: UUID of a GPU; None for the processors.
        memory_bytes: Memory of the device that a run may use.
        cores: Number of processors that this process may run on.
        power_limit_w: Default power limit (W) of a GPU; None for the processors, or if the driver does not report it.
        driver: Version of the GPU's driver.
        compute_mode: Compute mode of an NVIDIA GPU: `default`, `exclusive_process` or `prohibited`; else None.
        total_bytes: Whole memory of a GPU; 0 for the processors.
        free_bytes: Free memory of a GPU when it was found; 0 for the processors.
        unfit: Reason why the device cannot be shared, in words; empty if it can.
        cuda: Newest version of CUDA that the driver of an NVIDIA GPU runs; None if it is not known.
        capability: Compute capability of an NVIDIA GPU; None if it is not known.
        processors: Numbers of the processors of a partition; empty for a GPU, and for all processors of this process.
        links: Nearness (`base/device.py`) of other devices of the run, as (name, nearness) pairs.
        node: Name of the machine that has it, if the run has several; `local` otherwise.
    """

    name: str
    kind: str
    vendor: str
    model: str
    uuid: str | None
    memory_bytes: int
    cores: int
    power_limit_w: float | None = None
    driver: str | None = None
    compute_mode: str | None = None
    total_bytes: int = 0
    free_bytes: int = 0
    unfit: str = ""
    cuda: tuple[int, int] | None = None
    capability: tuple[int, int] | None = None
    processors: tuple[int, ...] = ()
    links: tuple[tuple[str, int], ...] = ()
    node: str = LOCAL

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_IN_JSON}

    @property
    def on_processors(self) -> bool:
        """Whether jobs run on the processors: their memory is watched, and processor time is their busy time."""
        return self.kind == PROCESSORS

    @property
    def scope(self) -> str:
        """Device that spends the joules, as meters name it: `gpu` or `cpu`."""
        return "cpu" if self.on_processors else "gpu"

    @property
    def described(self) -> str:
        """Device for which times and joules hold, in words; for processors with the number that a run may use."""
        # One core is `1 cores`, too: stored profiles are found by these words.
        return f"{self.model}, {self.cores} cores" if self.on_processors else self.model


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or the processors of one node.

    Attributes:
        name: Name, unique in the run, such as `cuda:0` or `cpu`.
        node: Name of the machine that holds the device. A gang spans several nodes only if `JobSpec.nodes` allows it.
        memory_bytes: Memory of the device that this run may use.
        speeds: Relative speed for each job class: rate on this device / rate on a typical device of its model. The
            class "" stands for all classes that are not named. A missing value is 1.
        threads: Number of processor threads; 0 for any other device.
        power_limits_w: Power limits (W) that this run may set, ascending; the last is the limit that the device was
            found with. Empty in a run that sets none.
        draws_w: Power (W) that the device is expected to draw at rest, and the most that it can draw. Known in a run
            with a power budget by placement only.
        links: Nearness (`base/device.py`) of other devices of the run, as (name, nearness) pairs. A device that is
            not named is at nearness 0, which means unknown.
    """

    name: str
    node: str
    memory_bytes: int
    speeds: Speeds = ()
    threads: int = 0
    power_limits_w: tuple[float, ...] = ()
    draws_w: tuple[float, float] = (0.0, 0.0)
    links: tuple[tuple[str, int], ...] = ()

    @property
    def memory_is_watched(self) -> bool:
        """Whether memory is watched as it grows instead of limited at allocation: true on processors."""
        return self.threads > 0

    def speed(self, job_class: str) -> float:
        """Relative speed of a job class: rate on this device / rate on a typical device of its model."""
        return speed_of(self.speeds, job_class)


def speed_of(speeds: Speeds, job_class: str) -> float:
    """Relative speed of a job class, which may be that of "", the class for all others; 1 if nothing is known."""
    known = dict(speeds)
    return known.get(job_class, known.get("", 1.0))


UNKNOWN, ACROSS_NODES, NUMA_NODE, HOST_BRIDGE, SEVERAL_SWITCHES, ONE_SWITCH, ONE_BOARD, XGMI = range(8)

_NVLINKS = 10
"""Nearness of no NVLink: their number is added to it."""


def over_nvlinks(links: int) -> int:
    """Nearness of two devices with this number of NVLinks between them, at least 1."""
    return _NVLINKS + links


def nvlinks(nearness: int) -> int:
    """Number of NVLinks that a nearness tells; 0 if the data go another way."""
    return max(0, nearness - _NVLINKS)
