"""Response of a device with its jobs to its power limit: how fast the jobs are, and what the device draws."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.values.packing import Packing

POWER_LIMIT = "power_limit"
"""Name of the knob that limits the power (W) of a board."""

BY_LIMITS, BY_PLACEMENT = "limits", "placement"
"""Ways to keep a power budget: limits of the devices are set, or only the jobs that start are chosen."""

MOST_MEASUREMENTS = 5
"""Most measurements of one packing, each under another limit."""

NEAR = 0.04
"""Relative distance of two limits below which a measurement of one says enough about the other."""


def not_kept(budget_w: float, device: str, error: str) -> str:
    """Reason in words why no job of a run may start: a device cannot be brought into the power budget."""
    return f"the power budget of {budget_w:g} W cannot be kept: {device}: {error}"


@dataclass(frozen=True, slots=True)
class LimitMeasurement:
    """Measurement of a packing under one power limit.

    Attributes:
        limit_w: Power limit (W) of the device.
        power_w: Mean power (W) of the device.
        times_s: Class and its mean time (s) of an iteration, for each class of the packing, sorted by class.
    """

    limit_w: float
    power_w: float
    times_s: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class KnownResponse:
    """Measurements of a packing under several power limits, from earlier runs."""

    packing: Packing
    measurements: tuple[LimitMeasurement, ...]


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """Expected behaviour of a packing under one power limit.

    Attributes:
        limit_w: Power limit (W) of the device.
        speed: Relative speed in (0, 1]: rate under this limit / rate under the largest limit, as the mean of the jobs.
        power_w: Mean power (W) of the device.
    """

    limit_w: float
    speed: float
    power_w: float


PowerResponse = tuple[PowerPoint, ...]
"""Points of one packing for all limits of a device, the lowest limit first."""
