"""GPU models: their power, from which energy is modelled, and their memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ecoshare.errors import UsageError

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
