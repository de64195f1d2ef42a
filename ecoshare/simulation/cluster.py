"""Cluster: the nodes and devices of a simulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import SPEED_COLUMNS, Device
from ecoshare.base.plural import counted
from ecoshare.errors import UsageError
from ecoshare.jobs.quantities import format_size
from ecoshare.knowledge.advisers.delimited import lines_of, quoted
from ecoshare.simulation.traces.job_trace import TraceJob
from ecoshare.simulation.traces.sheet import Row, Sheet

_GIB = 1 << 30

BUSY_SHARE = 0.75
"""Power of a GPU that trains / its power limit. Six workloads on a V100 (250 W) and an RTX 6000 (260 W), at the
largest limit and the default batch size, draw 0.71 and 0.75 of the limit on average. Single workloads draw 0.15 to
0.96 (You et al., "Zeus", NSDI 2023; the tables are in ml-energy/zeus)."""

IDLE_SHARE = 0.12
"""Power of an idle GPU / its power limit. An assumption: less than the 0.15 of the lightest of those workloads."""


@dataclass(frozen=True, slots=True)
class Watts:
    """Power of a device as a run recorded it.

    Attributes:
        idle_w: Power (W) of the idle device.
        active_w: Mean power (W) that a job at work adds to `idle_w`.
    """

    idle_w: float
    active_w: float


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model of device: a GPU, or the processors of a recorded run.

    Attributes:
        limit_w: Largest power (W): the vendor's power limit, or the largest value of a recorded run.
        recorded: Power from a recorded run; None if power is a share of `limit_w`.
    """

    name: str
    limit_w: float
    memory_bytes: int
    recorded: Watts | None = None

    @property
    def idle_w(self) -> float:
        """Power (W) of an idle device."""
        return IDLE_SHARE * self.limit_w if self.recorded is None else self.recorded.idle_w

    @property
    def active_w(self) -> float:
        """Power (W) that training adds to `idle_w`."""
        return (BUSY_SHARE - IDLE_SHARE) * self.limit_w if self.recorded is None else self.recorded.active_w


GPUS = {
    gpu.name: gpu
    for gpu in (
        GpuModel("a100", 400.0, 80 * _GIB),
        GpuModel("h100", 700.0, 80 * _GIB),
        GpuModel("h200", 700.0, 141 * _GIB),
        GpuModel("k80", 150.0, 12 * _GIB),
        GpuModel("p100", 300.0, 16 * _GIB),
        GpuModel("rtx6000", 260.0, 24 * _GIB),
        GpuModel("v100", 300.0, 32 * _GIB),
    )
}
"""GPU models by the name that `--gpu-model` takes. SXM boards if a model has several; a K80 is half its board."""


def gpu_named(model: str) -> GpuModel:
    """GPU that `--gpu-model` names.

    Raises:
        UsageError: No GPU has this name.
    """
    if model not in GPUS:
        raise UsageError(f"--gpu-model {model}: expected one of {', '.join(sorted(GPUS))}")
    return GPUS[model]


def gpu_of(maker_name: str) -> GpuModel | None:
    """GPU with this driver name, such as `NVIDIA H200` or `Tesla V100-SXM2-32GB`; None if unknown."""
    if "Ada" in maker_name:  # the RTX 6000 Ada is a later generation with another limit
        return None
    words = re.findall(r"[a-z]+\d+[a-z]*", maker_name.lower().replace("rtx ", "rtx"))
    return next((GPUS[word] for word in words if word in GPUS), None)


SKEWED = 0.3
"""Skew from which a job is kept on few nodes: size of its largest tensor / size of the model. Among the models of
Tiresias, those with one dominant tensor profit (VGG, AlexNet: 0.6 to 0.75). Models of many small tensors do not
(ResNet, Inception: under 0.1)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes with equal numbers of devices of one model.

    Attributes:
        nodes: Number of nodes.
        gpus: Devices of each node.
        gpu: Model of every device.
        spread: Whether a job may span any nodes, as if the network cost nothing.
        speeds: Relative speeds of devices that differ, keyed by device name and job class, as in `Device.speeds`.
        power_limits_w: Power limits (W) of every device; see `Device.power_limits_w`.
        threads: Number of processor threads of every device; 0 for GPUs.
    """

    nodes: int
    gpus: int
    gpu: GpuModel
    spread: bool = False
    speeds: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)
    power_limits_w: tuple[float, ...] = ()
    threads: int = 0

    @property
    def size(self) -> int:
        """Number of devices of all nodes."""
        return self.nodes * self.gpus

    def most_nodes(self, job: TraceJob) -> int | None:
        """Largest number of nodes that a job may span; None for any number.

        A job with skewed tensors gets the fewest nodes that hold it, a job without skew any number. A job of unknown
        skew stays on one node if it fits there.

        A large tensor is sent as one message, which delays all other messages if the network is the bottleneck: Gu
        et al., "Tiresias", NSDI 2019, section 3.4.
        """
        if self.spread:
            return None
        fewest = -(-job.gpus // self.gpus)
        if job.skew is None:
            return fewest if fewest == 1 else None
        return fewest if job.skew >= SKEWED else None

    def check(self, job: TraceJob, place: str) -> None:
        """Check that a job can run here.

        Args:
            job: Job of a trace.
            place: Place of the job in its file.

        Raises:
            UsageError: The job asks for more GPUs or memory than the cluster has.
        """
        name = f"{place}: job {job.name}"
        if job.gpus > (size := self.size):
            raise UsageError(
                f"{name} asks for {counted(job.gpus, 'GPU')}, and there {'is' if size == 1 else 'are'} {size}",
                "--gpus or --nodes says how many there are",
            )
        gpu_bytes = self.gpu.memory_bytes
        if job.memory is not None and job.memory.peak_bytes > gpu_bytes:
            raise UsageError(
                f"{name} needs {format_size(job.memory.peak_bytes)}, and a GPU has {format_size(gpu_bytes)}",
                "--gpu-model names a larger one",
            )

    def with_share(self, job: TraceJob) -> TraceJob:
        """The job with its part of a GPU as memory: it keeps at least that part of the memory of each of its GPUs.

        So the parts of the jobs of a GPU never add up to more than one, as on clusters that give out parts of a GPU.
        """
        if job.share is None:
            return job
        memory = job.memory or MemoryDemand(0)
        least_bytes = int(job.share * self.gpu.memory_bytes) - memory.ephemeral_bytes
        return replace(job, memory=replace(memory, persistent_bytes=max(memory.persistent_bytes, least_bytes)))

    def devices(self) -> tuple[Device, ...]:
        """Devices in the form that the core takes."""
        return tuple(
            Device(
                name,
                node,
                self.gpu.memory_bytes,
                tuple(sorted(speeds.items())),
                self.threads,
                self.power_limits_w,
            )
            for node, name in self._names()
            for speeds in [self.speeds.get(name, {})]
        )

    def _names(self) -> Iterator[tuple[str, str]]:
        """Node name and device name of each device."""
        return ((f"n{node}", f"n{node}g{gpu}") for node in range(self.nodes) for gpu in range(self.gpus))


def cluster(gpus: int | None, nodes: str | None, gpu: GpuModel, spread: bool = False) -> Cluster:
    """Cluster that the options describe: GPUs of one node, or `15x4` for 15 nodes of 4 GPUs.

    Raises:
        UsageError: The options describe no cluster, or two.
    """
    if nodes is not None and gpus is not None:
        raise UsageError("--gpus and --nodes say the same thing", "--nodes 15x4 is 60 GPUs")
    if nodes is None:
        if gpus is not None and gpus < 1:
            raise UsageError(f"--gpus {gpus}: expected at least 1")
        return Cluster(1, gpus or 1, gpu, spread)
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", nodes)
    if found is None:
        raise UsageError(f"--nodes {nodes}: expected nodes and the GPUs of each, such as 15x4")
    return Cluster(int(found[1]), int(found[2]), gpu, spread)


_FORM = "a calibration has the columns device, class and speed, and a line for each of a device's classes"


def read(path: Path, cluster: Cluster) -> dict[str, dict[str, float]]:
    """Relative speed for each device of the cluster and each job class: speed there / speed on a typical device.

    ::

        device,class,speed
        n0g0,resnet,0.93      rate of jobs of this class on this device / rate on a typical device
        n0g0,,0.98            the same for all other classes; 1 if this line is missing

    Raises:
        UsageError: The file cannot be read, or is empty.
        InvalidJobFile: The file has faults. The error lists all of them with line and column, but only the first
            unknown device.
    """
    lines = lines_of(path, _FORM)
    if not any(map(str.strip, lines)):
        raise UsageError(f"{path} is empty", _FORM)
    sheet = Sheet(str(path), lines, ",")
    device, job_class, speed = sheet.columns(SPEED_COLUMNS, "a calibration")
    found: dict[str, dict[str, float]] = {each.name: {} for each in cluster.devices()}
    missing: dict[str, Row] = {}
    for row in sheet.rows():
        name, of, value = sheet.text(row, device), row[1][job_class].strip(), sheet.positive(row, speed)
        if name not in found:
            missing.setdefault(name, row)
        elif of in found[name]:
            sheet.wrong(row, job_class, f"{name} has a speed of class {quoted(of)} in an earlier line")
        else:
            found[name][of] = value
    missing.pop("", None)  # reported already
    if missing:
        name, row = next(iter(missing.items()))
        more = f", nor {len(missing) - 1} more that are named here" if len(missing) > 1 else ""
        sheet.wrong(row, device, f"there is no {quoted(name)} among the GPUs n0g0 to {list(found)[-1]}{more}")
    sheet.finish()
    return {name: speeds for name, speeds in found.items() if speeds}
