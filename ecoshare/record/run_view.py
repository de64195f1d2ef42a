"""Snapshot of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ecoshare.base.measurement import Setting
from ecoshare.core.commands import Command
from ecoshare.core.events import Event

LONG_WAIT_S = 2.0
"""Time (s) from which a wait for the turn is told, and the rate before it no more."""

SILENT_S = 10.0
"""Time (s) from which a turn without the end of an iteration is a trouble to a job that waits as long behind it."""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """Requests of the last attempt of a service.

    Attributes:
        target_s: Target (s) of the 99th percentile of latencies.
        arrived: Number of requests that came.
        late: Number of late answers.
        unanswered: Number of requests that failed or were refused.
        p99_s: 99th percentile (s) of the latencies of the last seconds; None if there was no answer.
    """

    target_s: float
    arrived: int
    late: int
    unanswered: int
    p99_s: float | None


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
    service: ServiceView | None = None
    waits_for: tuple[str, ...] = ()
    metric: tuple[str, float] | None = None
    by_steps: bool = False
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


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane at one moment.

    Attributes:
        jobs: Jobs that are in it.
        holder: Job that has the turn; empty if none has it.
    """

    number: int
    jobs: tuple[str, ...]
    holder: str = ""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device at one moment. Each value from `power_w` to `memory_bytes` is None if the device does not report it.

    Attributes:
        name: Name of the device in the run.
        described: Name that its maker gives it.
        failed: Reason why it has failed; empty if it works.
        setting: Knobs that differ from how the device was found, with their values.
        power_w: Power (W), reported or the mean of about the last second.
        energy_j: Joules in this session of the run.
        energy_source: `measured` or `modelled`; empty without joules.
        busy: Part of the last moments in which anything ran on it, 0 to 1.
        memory_bytes: Memory in use, by all processes.
        memory_total_bytes: Memory that the run may use.
    """

    name: str
    described: str
    lanes: tuple[LaneView, ...]
    memory_total_bytes: int
    failed: str = ""
    setting: Setting = ()
    power_w: float | None = None
    energy_j: float | None = None
    energy_source: str = ""
    gpu_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    busy: float | None = None
    memory_bytes: int | None = None


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
