"""Facts that a driver tells the core, in the past tense.

Every event has `at_s`: seconds since the run was opened, never going back. A run's log is these events in order;
fed to a fresh core they give the same commands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ecoshare.core.memory import MemoryDemand

SCHEMA = 3
"""Version of the events and commands, written into `RunOpened`."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or the processors of one node.

    Attributes:
        name: Unique in the run, such as `cuda:0` or `cpu`.
        node: The machine it is in; a gang never spans nodes.
        memory_bytes: What this run may use of its memory.
        speeds: By job class: work that it does in a second, over that of a typical device of its model; under "" that
            of all classes that are not named, 1 where that is missing too.
        threads: Of processors; 0 for any other device.
    """

    name: str
    node: str
    memory_bytes: int
    speeds: tuple[tuple[str, float], ...] = ()
    threads: int = 0

    @property
    def memory_is_watched(self) -> bool:
        """Whether memory of jobs is told as it grows and no allocation is bound to a limit: on processors."""
        return self.threads > 0

    def speed(self, job_class: str) -> float:
        """Of jobs of a class, over that of a typical device."""
        known = dict(self.speeds)
        return known.get(job_class, known.get("", 1.0))


Setting = tuple[tuple[str, float | str], ...]
"""A value for each knob that is named, sorted; empty for the default: as the device was found."""

Packing = tuple[tuple[str, ...], ...]
"""The job classes of each lane of a device that has any; sorted, and the lanes too."""


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """The setting that is best for a packing, from an earlier run.

    Attributes:
        slower: Most that an iteration of any of its jobs takes, over the same at the default setting.
    """

    packing: Packing
    setting: Setting
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Solo:
    """What is known of a job class alone on its device, at the default setting.

    Attributes:
        family: Jobs of one script behave alike.
        iteration_s: Of training.
        power_w: Of the device while it runs, and `idle_w` with nobody at work; None where there is no meter.
        busy: Part of the time during which anything ran on the device.
        memory_busy: Part of it during which the device's memory was read or written.
    """

    family: str = ""
    iteration_s: float | None = None
    power_w: float | None = None
    idle_w: float | None = None
    busy: float | None = None
    memory_busy: float | None = None


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """How fast jobs of a class run beside one of another, each in a lane of its own, at the default setting.

    Attributes:
        one: Whose speed it is; `other`: its neighbour.
        speed: Over that alone.
        error: Its standard deviation.
    """

    one: str
    other: str
    speed: float
    error: float


@dataclass(frozen=True, slots=True)
class ColocationMeasurement:
    """Jobs that were measured beside each other at the default setting.

    Attributes:
        classes: Of the jobs; `speeds`: of each, over that alone.
        power_w: Of the device; None where there is no meter.
    """

    classes: tuple[str, ...]
    speeds: tuple[float, ...]
    power_w: float | None


class MeasurementStatus(Enum):
    """How far a trial can be believed."""

    MEASURED = "measured"
    CENSORED = "censored"
    """Stopped early, since a job was clearly too slow: its times are at least what they say."""
    CONTAMINATED = "contaminated"
    """Something else than the setting decided it."""
    FAILED = "failed"
    """The setting could not be applied."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of running a packing at a setting for a while.

    Attributes:
        power_w: Mean of the device; None where there is no meter.
        joules: Spent by the device.
        times_s: By job: seconds an iteration while it holds its turn.
        shares: By job: part of the time during which it held its turn.
        rates: By job: iterations that it ended a second, waits for its turn and for its data included.
        achieved: By knob: mean of what was seen; knobs that cannot be read are left out.
        throttles: What took clock away meanwhile, in words.
    """

    setting: Setting
    status: MeasurementStatus
    power_w: float | None = None
    joules: float | None = None
    duration_s: float = 0.0
    times_s: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    achieved: dict[str, float] = field(default_factory=dict)
    throttles: tuple[str, ...] = ()
    temperature_c: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """What was decided for a run before it began.

    Attributes:
        policy: Name of a policy.
        lanes_per_device: Lanes of each device; their budgets are equal shares of its memory.
        places_per_lane: Most jobs in one lane.
        preempt: Whether jobs that can be moved give up their places to those that the policy puts before them. Only
            where every device is one lane of one place.
        options: The policy's own parameters, by name.
        past_gpu_s: What past jobs have needed in all, for policies that learn from it.
        shared_context: Whether the jobs of a device share one context (MPS), so that an unclean death of one may
            have corrupted its neighbours.
        profile: Whether a job of a class without a profile is measured in a window of its own run.
        search: Whether the best setting of a packing is searched where it is not known.
    """

    policy: str
    lanes_per_device: int = 1
    places_per_lane: int = 4
    shared_context: bool = False
    profile: bool = False
    search: bool = False
    preempt: bool = False
    options: tuple[tuple[str, float], ...] = ()
    past_gpu_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """What earlier sessions of a resumed run have seen of a job.

    Attributes:
        attempts: Made, those that were cut off included.
        failures: That count against its retries.
        out_of_memory: It has run out of its share of a lane's memory.
    """

    attempts: int = 0
    failures: int = 0
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the core must know of a job; how to start it is the driver's affair.

    Attributes:
        name: Unique in the run.
        job_class: What profiles are kept for.
        gpus: Devices that it needs at once, all or nothing.
        nodes: Most nodes that these may be of; None for any number.
        priority: Higher first.
        iterations: Total number of training iterations, or None where nobody knows.
        service_s: Turn time that it needs in all, alone at the default setting, where that is known before it runs.
        phases: Epochs and the turn time of each, in order, as its profile or history has them; empty where unknown.
        power_w: What it draws beyond an idle device, for each of its devices, where that is known.
        movable: It can be stopped at any boundary and goes on from there elsewhere.
        widest: Devices that it can use at most, from one on; more than `gpus` only where it is movable.
        retries: How often a failure is tried again.
        memory: Its measured demand, or None before the first profile.
        solo: What else is known of its class alone.
        slowdown: Most that it may be slower than alone, waits for its turn included; None for any.
        profiled: There is a profile of its class.
        earlier_attempts: What earlier sessions of the same run have seen of it.
        fused: It may share a process with others of its script in its lane.
        sweep: That it is a trial of; empty for none. `values`: what makes it differ from the other trials, as text.
    """

    name: str
    job_class: str
    gpus: int = 1
    nodes: int | None = 1
    priority: int = 0
    iterations: int | None = None
    service_s: float | None = None
    phases: tuple[tuple[float, float], ...] = ()
    power_w: float | None = None
    movable: bool = False
    widest: int = 1
    retries: int = 0
    memory: MemoryDemand | None = None
    earlier_attempts: EarlierAttempts = EarlierAttempts()
    profiled: bool = False
    solo: Solo | None = None
    slowdown: float | None = None
    fused: bool = False
    sweep: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StoppingSpec:
    """When a trial of a sweep ends early: see `core/early_stopping.py`.

    Attributes:
        rule: `asha`, `median` or `halving`.
        grace: Steps that every trial may do.
        reduction: Of `asha` and `halving`: one of so many goes on from each rung.
        steps: Of a whole trial; 0 where that is not known.
    """

    rule: str
    grace: int = 1
    reduction: int = 3
    steps: int = 0


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """What a trial of an earlier session of the run had reported, the first value first."""

    name: str
    completed: bool
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """What the core must know of a sweep; what its trials are is the sampler's affair.

    Attributes:
        name: Unique among the jobs of the run.
        parallel: Most of its trials at once, those that wait for a place included.
        maximise: The larger a reported value, the better.
        early_stopping: Rule by which trials end early; None for none, or where the sampler has its own.
        drawn: Trials that earlier sessions have drawn.
        earlier_trials: Those of them that are over.
    """

    name: str
    parallel: int
    maximise: bool = False
    early_stopping: StoppingSpec | None = None
    drawn: int = 0
    earlier_trials: tuple[EarlierTrial, ...] = ()


class Outcome(Enum):
    """How an attempt of a job ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    """It left with an exit code other than 0."""
    CRASHED = "crashed"
    """A signal that nobody of ours sent ended it."""
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    """It ended because a `KillJob` command asked for it."""
    PRUNED = "pruned"
    """The same, since others of its sweep do better."""
    LOST = "lost"
    """Its supervisor died, or a job that it shared its process with, and it with that."""
    MOVED_OUT = "moved out"
    """It shared a process, and must have one of its own."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt of a job has used so far.

    Attributes:
        iterations: Training iterations done.
        eval_iterations: Inference iterations done.
        held_s: Time during which it held its turn.
        waited_s: Time during which it waited for its turn, from its first boundary to its last.
        span_s: Wall time from its first boundary to its last.
        cpu_s: Processor time of all its processes.
        peak_bytes: Largest memory seen, on the device or (CPU) as proportional set size.
        longest_wait_s: Longest single wait for a turn.
        handovers: Times that it was handed the turn.
        left_s: Turn time that it needs still, where who tells this knows better than by iterations and their times.
    """

    iterations: int = 0
    eval_iterations: int = 0
    held_s: float = 0.0
    waited_s: float = 0.0
    span_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    longest_wait_s: float = 0.0
    handovers: int = 0
    left_s: float | None = None

    @property
    def done(self) -> int:
        """Iterations of both kinds."""
        return self.iterations + self.eval_iterations

    @property
    def iteration_s(self) -> float | None:
        """Turn time of a training iteration, with the inference that goes with it; None before two are done.

        From the first boundary to the last: what came before the first is the script's start.
        """
        if self.iterations < 2:
            return None
        return max(0.0, self.span_s - self.waited_s) / (self.iterations - 1)


@dataclass(frozen=True, slots=True)
class RunOpened:
    """The first event: everything that later decisions depend on, so that a log replays alone.

    Attributes:
        known_settings: Settings that are known for packings.
        colocations: What earlier runs have measured of neighbours, the oldest first.
    """

    at_s: float
    schema: int
    config: Config
    devices: tuple[Device, ...]
    seed: int = 0
    known_settings: tuple[KnownSetting, ...] = ()
    colocations: tuple[ColocationMeasurement, ...] = ()


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A job may be started from now on.

    Attributes:
        answers: The `AskSampler` that it is the answer to; 0 where nobody asked.
    """

    at_s: float
    job: JobSpec
    answers: int = 0


@dataclass(frozen=True, slots=True)
class SweepOpened:
    """Trials of a sweep may be asked for from now on."""

    at_s: float
    sweep: SweepSpec


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A sampler has no more: the answer to an `AskSampler`, in place of a `JobArrived`.

    Attributes:
        error: Why, where it has failed.
    """

    at_s: float
    command: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """A trial has reported a value.

    Attributes:
        step: How many it has reported, this one included.
        halt: Why the sampler's own rule ends it here; empty where it does not.
    """

    at_s: float
    job: str
    step: int
    value: float
    halt: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """A command was carried out. What it freed or took counts from here; for a `WakeAt` the time has come."""

    at_s: float
    command: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A command could not be carried out, and changed nothing."""

    at_s: float
    command: int
    error: str


@dataclass(frozen=True, slots=True)
class IterationsDone:
    """A job's progress, told about once a second while it changes."""

    at_s: float
    job: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class JobExited:
    """An attempt of a job is over and its exit record is written.

    Attributes:
        exit_code: As a shell gives it: 128 + n for signal n; None where it is not known.
        reason: One line for the user; empty for success.
    """

    at_s: float
    job: str
    attempt: int
    outcome: Outcome
    exit_code: int | None
    reason: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Profiled:
    """The window that a `ProfileJob` asked for is over, and everybody may run again.

    Attributes:
        memory: What jobs of the class need; None where it is not known.
        error: Why there is no profile; empty where there is one.
        solo: What else was measured of the class.
    """

    at_s: float
    command: int
    memory: MemoryDemand | None
    error: str = ""
    solo: Solo | None = None


@dataclass(frozen=True, slots=True)
class SettingAdvised:
    """An adviser has answered an `AskSetting`.

    Attributes:
        setting: To be tried next; when the search is over, the best one, and the default where nothing is feasible.
        over: Whether the search is.
        note: Why it is, in words.
        slower: Of the best one: most that an iteration of any job takes, over the same at the default setting.
    """

    at_s: float
    command: int
    setting: Setting
    over: bool = False
    note: str = ""
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A planner has answered a `Plan`.

    Attributes:
        shares: By job, of the time.
    """

    at_s: float
    command: int
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class InterferencePredicted:
    """An adviser has answered an `AskInterference`.

    Attributes:
        pairs: Of all classes that it was asked about.
        prices: By class: joules that a second of its work alone is worth; empty where watts are not known.
    """

    at_s: float
    command: int
    pairs: tuple[PairSpeed, ...]
    prices: dict[str, float]


@dataclass(frozen=True, slots=True)
class SettingMeasured:
    """A `MeasureSetting` is over."""

    at_s: float
    command: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants the run to end: at the next boundaries, or at once."""

    at_s: float
    at_once: bool


Event = (
    RunOpened
    | JobArrived
    | SweepOpened
    | Exhausted
    | Reported
    | Done
    | Refused
    | IterationsDone
    | JobExited
    | Profiled
    | SettingAdvised
    | Planned
    | InterferencePredicted
    | SettingMeasured
    | StopRequested
)
