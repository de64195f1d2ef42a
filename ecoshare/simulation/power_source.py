"""Choice of the device that sets the power of a simulation: the user's GPU, the recorded device, or an assumed GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ecoshare.jobs.quantities import number
from ecoshare.simulation.cluster import GpuModel, gpu_named, gpu_of
from ecoshare.simulation.traces import recorded
from ecoshare.simulation.traces.job_trace import Trace

ASSUMED = "h200"
"""GPU of a trace that names none."""


class PowerOrigin(StrEnum):
    """Reason why a device prices a simulation."""

    GIVEN = "given"
    RECORDED = "recorded"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Power:
    """Device that sets the power, and so the energy, of a simulation.

    Attributes:
        gpu: Model of the device.
        origin: Reason for this choice.
        active_w: Power (W) above idle for each job class that a run recorded.
        about: Source of the power values, in words; empty if they are the GPU's own constants.
    """

    gpu: GpuModel
    origin: PowerOrigin
    active_w: Mapping[str, float] = field(default_factory=dict)
    about: str = ""

    @property
    def words(self) -> str:
        """Sentence for the user, with the power in watts."""
        at_work = sorted({self.gpu.idle_w + each for each in self.active_w.values()}) or [
            self.gpu.idle_w + self.gpu.active_w
        ]
        span = number(at_work[0])
        if number(at_work[-1]) != span:
            span += f" to {number(at_work[-1])}"
        watts = f"{number(self.gpu.idle_w)} W idle, {span} W at work"
        match self.origin:
            case PowerOrigin.RECORDED:
                return f"joules: power of the recorded device, {self.gpu.name} ({watts}; {self.about})"
            case PowerOrigin.GIVEN:
                return f"joules: power of --gpu-model {self.gpu.name} ({watts})"
            case PowerOrigin.ASSUMED:
                why = f"{self.about}; " if self.about else ""
                return f"joules: {why}{self.gpu.name} is assumed ({watts}); --gpu-model names another"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "device": self.gpu.name,
            "origin": str(self.origin),
            "idle_w": self.gpu.idle_w,
            "active_w": self.gpu.active_w,
            "active_w_by_class": dict(self.active_w),
            "about": self.about,
        }


def choose(gpu_model: str | None, trace: Trace | None) -> Power:
    """Device that sets the power, and so the energy, of a simulation.

    Args:
        gpu_model: GPU that the user named, which always wins; None if the user named none.
        trace: Trace that is simulated; only the trace of a recorded run tells its device. None for a generated trace.

    Raises:
        UsageError: The GPU is unknown, or the run folder is damaged.
    """
    if gpu_model is not None:
        return Power(gpu_named(gpu_model), PowerOrigin.GIVEN)
    assumed = gpu_named(ASSUMED)
    if trace is None or trace.kind != recorded.KIND:
        return Power(assumed, PowerOrigin.ASSUMED)
    found = recorded.read_power(Path(trace.file), trace)
    if isinstance(found, recorded.Recorded):
        return Power(found.gpu, PowerOrigin.RECORDED, found.active_w, found.about)
    if (known := gpu_of(found.model)) is not None:
        return Power(known, PowerOrigin.RECORDED, about="constants of this model: the run has no joules")
    return Power(assumed, PowerOrigin.ASSUMED, about="the run does not tell what its device drew")
