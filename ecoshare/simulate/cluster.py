"""The devices of a simulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ecoshare.core.events import Device
from ecoshare.errors import UsageError
from ecoshare.simulate.gpus import GpuModel
from ecoshare.simulate.traces.job_trace import TraceJob

SKEWED = 0.3
"""Share of a model's largest tensor from which it is kept together. Of Tiresias' models those profit whose largest
tensor is most of them (VGG, AlexNet: 0.6 to 0.75), not those of many small ones (ResNet, Inception: under 0.1)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes with equally many devices of one model.

    Attributes:
        nodes: How many.
        gpus: Devices of each.
        spread: Whether a job may have devices of any nodes, as if the network cost nothing.
        speeds: What is known of devices that differ: by name and class of job, as in `Device.speeds`.
    """

    nodes: int
    gpus: int
    gpu: GpuModel
    spread: bool = False
    speeds: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)

    @property
    def size(self) -> int:
        """Devices in all."""
        return self.nodes * self.gpus

    def most_nodes(self, job: TraceJob) -> int | None:
        """Most nodes that a job may span: as few as can be where its tensors are skewed, any number where not, and
        those that do not say stay in one where they fit.

        A large tensor is sent as one message, which holds up all others where the network is the bottleneck: Gu et
        al., "Tiresias", NSDI 2019, section 3.4.
        """
        if self.spread:
            return None
        fewest = -(-job.gpus // self.gpus)
        if job.skew is None:
            return fewest if fewest == 1 else None
        return fewest if job.skew >= SKEWED else None

    def devices(self) -> tuple[Device, ...]:
        """As the core knows them."""
        return tuple(
            Device(name, node, self.gpu.memory_bytes, tuple(sorted(self.speeds.get(name, {}).items())))
            for node, name in self._names()
        )

    def _names(self) -> Iterator[tuple[str, str]]:
        """Of each device: its node's, and its own."""
        return ((f"n{node}", f"n{node}g{gpu}") for node in range(self.nodes) for gpu in range(self.gpus))


def cluster(gpus: int | None, nodes: str | None, gpu: GpuModel, spread: bool = False) -> Cluster:
    """The cluster that the options describe: GPUs of one node, or `15x4` for 15 nodes of 4.

    Raises:
        UsageError: They describe none, or two.
    """
    if nodes is not None and gpus is not None:
        raise UsageError("--gpus and --nodes say the same thing", "--nodes 15x4 is 60 GPUs")
    if nodes is None:
        if gpus is not None and gpus < 1:
            raise UsageError(f"--gpus {gpus}: at least 1")
        return Cluster(1, gpus or 1, gpu, spread)
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", nodes)
    if found is None:
        raise UsageError(f"--nodes {nodes}: expected nodes and the GPUs of each, such as 15x4")
    return Cluster(int(found[1]), int(found[2]), gpu, spread)
