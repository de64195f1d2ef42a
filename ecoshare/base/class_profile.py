"""Figures of a job class alone on its device, as decisions use them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ecoshare.base.measurement import Packing

CONTEXT_BYTES = 600 << 20
"""Assumed device memory of a process outside its allocator, where the driver does not tell it.

A CUDA context with its kernels takes 300 to 500 MiB on today's GPUs.
"""


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """Device memory that a job needs.

    Attributes:
        persistent_bytes: P, memory that the job keeps while it waits for its turn.
        ephemeral_bytes: T, memory that the job needs beyond P inside an iteration.
    """

    persistent_bytes: int
    ephemeral_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """P + T: most memory that the job needs while it holds the turn."""
        return self.persistent_bytes + self.ephemeral_bytes


@dataclass(frozen=True, slots=True)
class Solo:
    """Measurements of a job class alone on its device, at the default setting.

    Attributes:
        family: Script of the class. Jobs of one script behave alike.
        iteration_s: Time (s) of a training iteration. If devices differ, it is that of a typical one.
        power_w: Mean power (W) of the device while the job runs; None without a meter.
        idle_w: Power (W) of the idle device; None without a meter.
        busy: Part of the time, in [0, 1], in which work ran on the device.
        memory_busy: Part of the time, in [0, 1], in which the device memory was read or written.
        longest_s: Time (s) that an iteration, or an answer of a service, takes at most, as an upper quantile; None if
            unknown.
    """

    family: str = ""
    iteration_s: float | None = None
    power_w: float | None = None
    idle_w: float | None = None
    busy: float | None = None
    memory_busy: float | None = None
    longest_s: float | None = None

    def on_typical_device(self, speed: float) -> Solo:
        """The same class on a typical device, from measurements on a device with this relative speed."""
        iteration_s = None if self.iteration_s is None else self.iteration_s * speed
        longest_s = None if self.longest_s is None else self.longest_s * speed
        return replace(self, iteration_s=iteration_s, longest_s=longest_s)


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
