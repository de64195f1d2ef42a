"""Chooses whose power prices a simulation: the GPU that the user names, the recorded device, or an assumed GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ecoshare.jobs.quantities import number
from ecoshare.simulate.gpus import GpuModel, gpu_named, gpu_of
from ecoshare.simulate.traces import recorded, recorded_power
from ecoshare.simulate.traces.job_trace import Trace

ASSUMED = "h200"
"""The GPU of a trace that names none."""


class PowerOrigin(StrEnum):
    """Reason why a device prices a simulation."""

    GIVEN = "given"
    RECORDED = "recorded"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Power:
    """The device whose power prices a simulation.

    Attributes:
        active_w: Watts beyond an idle device, by job class, as far as a run recorded them.
        about: Source of the watts, in words; empty where the GPU's own constants are used.
    """

    gpu: GpuModel
    origin: PowerOrigin
    active_w: Mapping[str, float] = field(default_factory=dict)
    about: str = ""

    @property
    def words(self) -> str:
        """One sentence for the user, with the watts."""
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
    """The device that prices a simulation.

    Args:
        gpu_model: The user's own choice, which always wins; None for none.
        trace: The trace, where its device matters: that of a recorded run; None for a generated one.

    Raises:
        UsageError: There is no such GPU, or the run folder is damaged.
    """
    if gpu_model is not None:
        return Power(gpu_named(gpu_model), PowerOrigin.GIVEN)
    assumed = gpu_named(ASSUMED)
    if trace is None or trace.kind != recorded.KIND:
        return Power(assumed, PowerOrigin.ASSUMED)
    found = recorded_power.read(Path(trace.file), trace)
    if isinstance(found, recorded_power.Recorded):
        return Power(found.gpu, PowerOrigin.RECORDED, found.active_w, found.about)
    if (known := gpu_of(found.model)) is not None:
        return Power(known, PowerOrigin.RECORDED, about="constants of this model: the run has no joules")
    return Power(assumed, PowerOrigin.ASSUMED, about="the run does not tell what its device drew")
