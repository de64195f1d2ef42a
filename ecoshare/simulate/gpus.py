"""What devices draw, for joules that are modelled, and how much memory they have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ecoshare.errors import UsageError

_GIB = 1 << 30

BUSY_SHARE = 0.75
"""Of its power limit, what a GPU that trains draws. Six workloads on a V100 (250 W) and an RTX 6000 (260 W), at the
largest limit and the default batch size, draw 0.71 and 0.75 of it on average, 0.15 to 0.96 each (You et al., "Zeus",
NSDI 2023; the tables are in ml-energy/zeus)."""

IDLE_SHARE = 0.12
"""Of its power limit, what an idle GPU draws. An assumption: less than the 0.15 of the lightest of those workloads."""


@dataclass(frozen=True, slots=True)
class Watts:
    """Power of a device as a run recorded it.

    Attributes:
        idle_w: Drawn at rest.
        active_w: Drawn beyond that by a job at work, on average.
    """

    idle_w: float
    active_w: float


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model of device: a GPU, or the processors of a recorded run.

    Attributes:
        limit_w: Most that it draws: the vendor's power limit, or what a run recorded.
        recorded: Power from a recorded run; None for shares of `limit_w`.
    """

    name: str
    limit_w: float
    memory_bytes: int
    recorded: Watts | None = None

    @property
    def idle_w(self) -> float:
        """Drawn by an idle one."""
        return IDLE_SHARE * self.limit_w if self.recorded is None else self.recorded.idle_w

    @property
    def active_w(self) -> float:
        """Drawn beyond that by one that trains."""
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
"""By the name that `--gpu-model` takes. SXM boards where there are several; a K80 is half of its board."""


def gpu_named(model: str) -> GpuModel:
    """The GPU that `--gpu-model` names.

    Raises:
        UsageError: There is none of this name.
    """
    if model not in GPUS:
        raise UsageError(f"--gpu-model {model}: expected one of {', '.join(sorted(GPUS))}")
    return GPUS[model]


def gpu_of(maker_name: str) -> GpuModel | None:
    """The GPU that the driver calls by this name, such as `NVIDIA H200` or `Tesla V100-SXM2-32GB`; None if unknown."""
    if "Ada" in maker_name:  # the RTX 6000 of a later generation has another limit
        return None
    words = re.findall(r"[a-z]+\d+[a-z]*", maker_name.lower().replace("rtx ", "rtx"))
    return next((GPUS[word] for word in words if word in GPUS), None)
