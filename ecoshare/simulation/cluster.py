"""Cluster: the nodes and devices of a simulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ecoshare.common.plural import counted
from ecoshare.errors import UsageError
from ecoshare.jobs.quantities import format_size
from ecoshare.simulation.gpus import GpuModel
from ecoshare.simulation.traces.job_trace import TraceJob
from ecoshare.values.class_profile import MemoryDemand
from ecoshare.values.device import Device

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
