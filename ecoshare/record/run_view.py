"""Snapshot of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from ecoshare.core.commands import Command
from ecoshare.core.events import Event

LONG_WAIT_S = 2.0
"""Time (s) from which a wait for the turn is told, and the rate before it no more."""

SILENT_S = 10.0
"""Time (s) from which a turn without the end of an iteration is a trouble to a job that waits as long behind it."""


class _Status(BaseModel):
    """A part of a run, as the queue's HTTP interface tells it, too."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServiceStatus(_Status):
    """Requests of the last attempt of a service."""

    target_s: float = Field(description="Target (s) of the 99th percentile of latencies.")
    arrived: int = Field(description="Number of requests that came.")
    late: int = Field(description="Number of late answers.")
    unanswered: int = Field(description="Number of requests that failed or were refused.")
    p99_s: float | None = Field(description="99th percentile (s) of the latencies of the last seconds.")


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment.

    Attributes:
        state: Value of a `core.states.JobState`, or `arriving`.
        waits_for: Jobs and sweeps that an arriving job waits for.
        metric: Text of the metric of a trial, and the last value that it has reported; None for no value.
        holding: Whether the job has the turn of its lane.
        total: Number of all iterations; None if it is unknown, or if the job has done more than a learned number.
        rate: Iterations per second of wall time, waits included; None before two are done, and in a long wait.
        slowdown: Slowdown so far, see `record.job_summary.slowdown`; None if not known.
        reason: Cause of a failure, or of a job that never arrives; empty in any other state.
        by_time: Whether no iteration was seen for long, so that the job shares by time.
        by_steps: Whether iterations are steps of optimizers that step by turns, see `Usage`.
        is_learned: Whether `total` is learned from earlier runs.
        turn_wait_s: Time (s) for which it has waited for its turn so far; 0 up to `LONG_WAIT_S`.
        behind: Jobs that have a turn on its devices meanwhile; empty if it does not wait for long.
        devices: Names of the devices that the job is on; empty if the run has one device only.
        service: Requests of a service, which has neither rate nor slowdown; None for any other job.
    """

    name: str
    state: str
    lanes: tuple[int, ...]
    holding: bool
    iterations: int
    eval_iterations: int
    total: int | None
    rate: float | None
    slowdown: float | None
    reason: str = ""
    is_learned: bool = False
    devices: tuple[str, ...] = ()
    service: ServiceStatus | None = None
    waits_for: tuple[str, ...] = ()
    metric: tuple[str, float] | None = None
    by_steps: bool = False
    by_time: bool = False
    turn_wait_s: float = 0.0
    behind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep at one moment.

    Attributes:
        trials: Number of all trials.
        ended: Number of ended trials, by state.
        best: Name and value of the best completed trial, or words for the best configuration and its mean, if the
            trials differ in a seed; None before there is one.
    """

    name: str
    trials: int
    ended: dict[str, int]
    best: tuple[str, float] | None


class LaneStatus(_Status):
    """A lane of a device."""

    number: int
    jobs: list[str] = Field(description="Jobs and trials that are in it.")
    holder: str = Field(default="", description="Job that has the turn; empty if none has it.")


class DeviceStatus(_Status):
    """A device of a run. A value that the device does not report is null."""

    name: str = Field(description="Name in the run, such as cuda:0.")
    described: str = Field(description="Name that its maker gives it.")
    failed: str = Field(default="", description="Reason why it has failed; empty if it works.")
    lanes: list[LaneStatus]
    setting: dict[str, float | str] = Field(default={}, description="Knobs that differ from how it was found.")
    power_w: float | None = Field(default=None, description="Mean power (W) of about the last second.")
    energy_j: float | None = Field(default=None, description="Joules in this session of the run.")
    energy_source: str = Field(default="", description="measured or modelled; empty without joules.")
    gpu_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    busy: float | None = Field(default=None, description="Part of the last moments in which it worked, 0 to 1.")
    memory_bytes: int | None = Field(default=None, description="Memory in use, on processors by the jobs alone.")
    memory_total_bytes: int = Field(description="Memory that the run may use.")


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment.

    Attributes:
        jobs: Jobs of the run. Trials of sweeps are included only from their arrival to their end.
        warm: Whether torch is loaded.
        warnings: Present troubles in words, each by its subject.
    """

    at_s: float
    jobs: tuple[JobView, ...]
    stopping: bool
    warm: bool
    sweeps: tuple[SweepView, ...] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)


class ProgressDisplay(Protocol):
    """Display that receives the events of a run and shows its state."""

    def event(self, event: Event, commands: list[Command]) -> None:
        """Receive an event and the commands that followed from it."""
        ...

    def is_due(self, at_s: float) -> bool:
        """Whether the display would show the state of the run now; asked a few times a second.

        Args:
            at_s: Time (s) since the run was opened.
        """
        ...

    def show(self, view: RunView) -> None:
        """Show the present state of the run."""
        ...

    def close(self) -> None: ...
