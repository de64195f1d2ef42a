"""Modelled energy: utilisation times watts, for machines without a readable meter.

A model is not a measurement. At best, modelled joules compare runs on one machine. The word *modelled* stands beside
them wherever they appear.

Processors: watts of a virtual core at rest and at full load. Both are averages over the machines of one large provider,
from Cloud Carbon Footprint, "Methodology", section "Compute" (AWS: 0.74 W and 3.5 W), after Etsy's "Cloud Jewels".
GPUs: the idle power that the driver showed when the run began, and the board's default power limit as full load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ecoshare.common.plural import counted as worded

IDLE_W_PER_CORE = 0.74
BUSY_W_PER_CORE = 3.5


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts of a device at rest and at full load.

    Attributes:
        idle_w: Power (W) of the whole device at rest.
        busy_w: Power (W) of the whole device at full load.
        full_load: Busy seconds per second at full load: the number of cores, or 1 for a GPU.
        source: Origin of the watts, in words.
    """

    idle_w: float
    busy_w: float
    full_load: float
    source: str

    def idle_j(self, wall_s: float) -> float:
        """Joules that the idle device spends in `wall_s` seconds."""
        return self.idle_w * wall_s

    def active_j(self, busy_s: float) -> float:
        """Joules that work adds to idle power; `busy_s` is in core-seconds, or in seconds of a GPU held."""
        return busy_s * (self.busy_w - self.idle_w) / self.full_load


def as_json(models: Mapping[str, PowerModel | None]) -> dict[str, dict[str, Any] | None]:
    """Power models by the names of their devices, as JSON has them."""
    return {name: asdict(model) if model is not None else None for name, model in models.items()}


def processors(cores: int) -> PowerModel:
    """Power model of `cores` virtual cores."""
    return PowerModel(
        idle_w=IDLE_W_PER_CORE * cores,
        busy_w=BUSY_W_PER_CORE * cores,
        full_load=float(cores),
        source=f"{worded(cores, 'core')} of {IDLE_W_PER_CORE} W at rest and {BUSY_W_PER_CORE} W busy "
        "(Cloud Carbon Footprint)",
    )


def gpu(idle_w: float, limit_w: float) -> PowerModel:
    """Power model of a GPU: `idle_w` at rest, and the power limit `limit_w` at full load."""
    source = f"{idle_w:.0f} W at rest (driver), {limit_w:.0f} W busy (default power limit)"
    return PowerModel(idle_w, limit_w, 1.0, source)
