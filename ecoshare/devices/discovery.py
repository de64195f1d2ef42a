"""Finds the device that a run uses, and how much of its memory the run may use."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ecoshare.common.plural import counted
from ecoshare.devices import nvml
from ecoshare.errors import UnfitEnvironment, UsageError, did_you_mean

CPU_SHARE = 0.8
"""Share of the available memory that a run may use. The rest is for the page cache and for other programs."""

GPU_SHARE = 0.95
"""Share of the free memory that a run may use. The rest is for the driver, which needs more with each context."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device that jobs can share.

    Attributes:
        name: `cpu` or `cuda:N`. N counts the GPUs that are visible here, in the driver's order.
        kind: `cpu` or `cuda`.
        model: Name that the maker gives the device.
        uuid: UUID of a GPU; None for the processors.
        memory_bytes: Memory of the device that a run may use.
        cores: Number of processors that this process may run on.
        power_limit_w: Default power limit (W) of a GPU; None for the processors, or if the driver does not report it.
        driver: Version of the GPU's driver.
        compute_mode: Compute mode of a GPU, as in `NvmlGpu`.
    """

    name: str
    kind: str
    model: str
    uuid: str | None
    memory_bytes: int
    cores: int
    power_limit_w: float | None = None
    driver: str | None = None
    compute_mode: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @property
    def described(self) -> str:
        """Device for which times and joules hold, in words; for processors with the number that a run may use."""
        # One core is `1 cores`, too: stored profiles are found by these words.
        return f"{self.model}, {self.cores} cores" if self.kind == "cpu" else self.model

    @property
    def environment(self) -> dict[str, str | None]:
        """Variables that make only this device visible to a job."""
        return {"CUDA_VISIBLE_DEVICES": self.uuid or ""}


def find(wanted: str | None) -> DeviceInfo:
    """Device with this name (`cpu`, `cuda`, `cuda:1`); without a name the first GPU, else the processors.

    Raises:
        UsageError: The name has another form.
        UnfitEnvironment: There is no such device here, or it cannot be shared.
    """
    if wanted is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", wanted):
        raise UsageError(f"--device {wanted}: expected cpu, cuda or cuda:N", _meant(wanted))
    if wanted == "cpu":
        return processors()
    visible = visible_gpus()
    if wanted is None and not visible:
        return processors()
    index = int(wanted.partition(":")[2] or 0) if wanted else 0
    if index >= len(visible):
        raise UnfitEnvironment(
            f"--device {wanted}: this machine shows {counted(len(visible), 'GPU')}",
            "see `ecoshare doctor`; `--device cpu` needs none",
        )
    gpu = visible[index]
    if gpu.mig:
        raise UnfitEnvironment(f"cuda:{index} is cut into MIG instances, which ecoshare cannot share yet")
    if gpu.compute_mode == "prohibited":
        raise UnfitEnvironment(f"cuda:{index} is in compute mode `prohibited`: no program may use it")
    return DeviceInfo(
        name=f"cuda:{index}",
        kind="cuda",
        model=gpu.model,
        uuid=gpu.uuid,
        memory_bytes=int(gpu.free_bytes * GPU_SHARE),
        cores=len(os.sched_getaffinity(0)),
        power_limit_w=gpu.default_limit_w,
        driver=gpu.driver,
        compute_mode=gpu.compute_mode,
    )


def _meant(wanted: str) -> str:
    # Letter for letter, `gpu` is nearer to `cpu` than to `cuda`.
    is_gpu = wanted.lower().startswith(("gpu", "nvidia"))
    return did_you_mean("cuda" if is_gpu else wanted, ("cpu", "cuda"))


def visible_gpus() -> list[nvml.NvmlGpu]:
    """Visible GPUs in the order in which CUDA would count them in this environment.

    `CUDA_VISIBLE_DEVICES` takes numbers, UUIDs and beginnings of UUIDs. CUDA ignores a name that fits no GPU and all
    names after it, and so does this function. Numbers follow the bus order, which is the driver's
    (`CUDA_DEVICE_ORDER=PCI_BUS_ID`).

    Raises:
        UnfitEnvironment: The driver fails, or the variable names a MIG instance. Such a part of a GPU has no energy
            counter and no clocks of its own.
    """
    found = nvml.gpus()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return found
    visible: list[nvml.NvmlGpu] = []
    for name in names.split(","):
        if name.strip().startswith("MIG-"):
            raise UnfitEnvironment(
                f"CUDA_VISIBLE_DEVICES names a MIG instance ({name.strip()}), and ecoshare shares whole GPUs",
                "name the GPU, or use `--device cpu` without it",
            )
        fits = [gpu for gpu in found if name.strip() == str(gpu.index) or _starts(gpu.uuid, name.strip())]
        if len(fits) != 1:
            break
        visible += fits
    return visible


def _starts(uuid: str, name: str) -> bool:
    return name.startswith("GPU-") and uuid.startswith(name)


def processors() -> DeviceInfo:
    """Processors and memory that this process may use, as one device."""
    return DeviceInfo("cpu", "cpu", _processor_model(), None, int(_available_bytes() * CPU_SHARE), _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _processor_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _available_bytes() -> int:
    """Memory (bytes) that is available without swapping, within the limit of the control group."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    try:
        group = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2]
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        limit = int((folder / "memory.max").read_text())
        return min(available, limit - int((folder / "memory.current").read_text()))
    except (OSError, ValueError):
        return available
