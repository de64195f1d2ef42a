"""Segment of the log of a run that stays open: where it begins anew while jobs go on.

::

    events-1.jsonl   RunOpened ─── jobs come, run and end ───▏
    events.jsonl                                              ▏ RunOpened(segment) ─── the same jobs and sweeps go on

A log would grow for ever, and so would the scheduler, which keeps each job. So a fresh scheduler takes over. It knows
what a `Segment` says, and nothing of the jobs that have ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.job_spec import Configuration, JobSpec, SweepSpec
from ecoshare.base.measurement import JobPhase, Setting


@dataclass(frozen=True, slots=True)
class CarriedJob:
    """A job that goes on in another segment. Fields have the meaning of those of `core.records.Job`.

    Attributes:
        spec: Description of the job, with what has been measured of its class since it came.
        lanes: Numbers of the lanes in which it has a place; empty if it has none.
        held: Whether the user holds it.
        fused: Whether its attempt shares a process with other jobs.
        state: State of a job that starts, stops, pauses or is parked; empty for any other: it runs in its lanes, or
            waits.
        command: Id of its `StartJob` that has no answer yet; None if there is none.
        cancelled: Whether the user has cancelled it.
        parked_in: Number of the lane in which it was parked, and will be resumed; None if it is not parked.
        since_s: Time (s) since which it is in its state; None for the begin of the segment.
        waits_since_s: Time (s) at which it last began to wait for a place; None for the begin of the segment.
    """

    spec: JobSpec
    arrival_s: float
    lanes: tuple[int, ...] = ()
    held: bool = False
    fused: bool = False
    attempt: int = 0
    demand: MemoryDemand = field(default_factory=lambda: MemoryDemand(0))
    promised: MemoryDemand = field(default_factory=lambda: MemoryDemand(0))
    cap_bytes: int = 0
    whole_device: bool = False
    least_bytes: int = 0
    failures: int = 0
    false_starts: int = 0
    losses: int = 0
    deaths: int = 0
    passed: int = 0
    usage: Usage = field(default_factory=Usage)
    phase: JobPhase = JobPhase.TRAINS
    earlier_s: float = 0.0
    earlier_iterations: int = 0
    first_start_s: float | None = None
    told_s: float = 0.0
    measured_longest_s: float | None = None
    boundary_s: float | None = None
    level: int = 0
    level_s: float = 0.0
    forgiven_s: float = 0.0
    state: str = ""
    command: int | None = None
    cancelled: bool = False
    parked_in: int | None = None
    since_s: float | None = None
    waits_since_s: float | None = None

    @property
    def has_attempt(self) -> bool:
        """Whether an attempt of the job is under way. One that is parked, or was and is killed, has no place."""
        return bool(self.lanes) or self.state in ("parked", "stopping")


@dataclass(frozen=True, slots=True)
class RuleState:
    """State of a rule of early stopping, with the fields of the rules in `core/sweeps.py`.

    Attributes:
        rungs: Each configuration that has reached a rung, with the sum of its values and their number, by rung.
        passed: Number of the rungs that each trial has passed.
        waiting: Trials that pause, each with its value at the rung and its configuration.
        means: Means of the completed trials at each step, in ascending order.
        values: Values of the trials that are not through.
    """

    rungs: tuple[tuple[tuple[Configuration, float, int], ...], ...] = ()
    passed: tuple[tuple[str, int], ...] = ()
    waiting: tuple[tuple[str, float, Configuration], ...] = ()
    means: tuple[tuple[float, ...], ...] = ()
    values: tuple[tuple[str, tuple[float, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class CarriedSweep:
    """A sweep that goes on in another segment.

    Attributes:
        spec: Description, with the number of the trials that were drawn. Trials of earlier sessions are left out.
        rule: State of its rule of early stopping; None without a rule.
        asked: Questions to its sampler that have no answer yet: id of the command, and number of the trial.
        live: Number of trials that have arrived and not ended, without the paused ones.
        over: Whether its sampler has no more trials, or is asked for none any more.
        cancelled: Whether the user has cancelled it.
        paused: Names of the paused trials that have left their places.
    """

    spec: SweepSpec
    rule: RuleState | None = None
    asked: tuple[tuple[int, int], ...] = ()
    live: int = 0
    over: bool = False
    cancelled: bool = False
    paused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """Facts that a segment takes over from the one before.

    Attributes:
        jobs: Jobs that have not ended, in the order of their arrival.
        settings: Setting in force on each device that is not at its default setting, by the name of the device.
        limits_w: Power limits (W) that devices were asked for and show, as (device, asked, shown).
        emptied: Names of the devices where waiting jobs empty their caches.
        commands: Id of the last command before. Ids go on from there: slots of lanes are marked with them.
        lanes: Open lanes, as (number, name of the device). Lanes of other devices of the segment are opened anew.
        lanes_made: Number of lanes of the run so far. Those of devices that are new are numbered from there.
        dropped: Ids of commands to devices that have failed since. An answer that still comes is ignored.
        had_work: Whether any job was no open-ended service.
        sweeps: Sweeps that have trials, or more of them to come.
        limits: Limits of allocators that have no answer yet, as (id of the command, job, bytes).
        left: Memory that other runs leave of devices, as (device, bytes, number of the `MemoryLeft` that said so).
        others: Number of other runs that want the devices.
    """

    jobs: tuple[CarriedJob, ...] = ()
    settings: tuple[tuple[str, Setting], ...] = ()
    limits_w: tuple[tuple[str, float, float], ...] = ()
    emptied: tuple[str, ...] = ()
    commands: int = 0
    lanes: tuple[tuple[int, str], ...] = ()
    lanes_made: int = 0
    dropped: tuple[int, ...] = ()
    had_work: bool = False
    sweeps: tuple[CarriedSweep, ...] = ()
    limits: tuple[tuple[int, str, int], ...] = ()
    left: tuple[tuple[str, int, int], ...] = ()
    others: int = 0

    def spares(self, devices: Collection[str]) -> bool:
        """Whether the jobs can do without these devices: none runs there, none waits, and enough are left for each."""
        if self.sweeps:  # the next trial may need any of them
            return False
        used = {lane for job in self.jobs for lane in job.lanes}
        left = {device for _, device in self.lanes if device not in devices}
        needed = max((job.spec.gpus for job in self.jobs), default=1)
        waits = any(not (job.lanes or job.held) for job in self.jobs)
        return not waits and len(left) >= needed and all(device in left for lane, device in self.lanes if lane in used)

    def without(self, devices: Collection[str]) -> Segment:
        """The segment without devices that no job runs on."""
        return replace(
            self,
            lanes=tuple(each for each in self.lanes if each[1] not in devices),
            settings=tuple(each for each in self.settings if each[0] not in devices),
            emptied=tuple(name for name in self.emptied if name not in devices),
        )
