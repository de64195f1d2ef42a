"""What GPUs draw, for joules that are modelled, and how much memory they have."""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 1 << 30

BUSY_SHARE = 0.75
"""Of its power limit, what a GPU that trains draws. Six workloads on a V100 (250 W) and an RTX 6000 (260 W), at the
largest limit and the default batch size, draw 0.71 and 0.75 of it on average, 0.15 to 0.96 each (You et al., "Zeus",
NSDI 2023; the tables are in ml-energy/zeus)."""

IDLE_SHARE = 0.12
"""Of its power limit, what an idle GPU draws. An assumption: less than the 0.15 of the lightest of those workloads."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A model of GPU.

    Attributes:
        limit_w: Power limit, from the vendor's data sheet.
    """

    name: str
    limit_w: float
    memory_bytes: int

    @property
    def idle_w(self) -> float:
        """Drawn by an idle one."""
        return IDLE_SHARE * self.limit_w

    @property
    def active_w(self) -> float:
        """Drawn beyond that by one that trains."""
        return (BUSY_SHARE - IDLE_SHARE) * self.limit_w


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", 400.0, 80 * _GIB),
        Gpu("h100", 700.0, 80 * _GIB),
        Gpu("h200", 700.0, 141 * _GIB),
        Gpu("k80", 150.0, 12 * _GIB),
        Gpu("p100", 300.0, 16 * _GIB),
        Gpu("rtx6000", 260.0, 24 * _GIB),
        Gpu("v100", 300.0, 32 * _GIB),
    )
}
"""By the name that `--gpu-model` takes. SXM boards where there are several; a K80 is half of its board."""
