"""Events: facts that a driver tells the core, in the past tense.

Every event has `at_s`: seconds since the run was opened, which never decrease. The log of a run is these events in
order. A fresh core that gets the same events gives the same commands.
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
        name: Name, unique in the run, such as `cuda:0` or `cpu`.
        node: Name of the machine that holds the device. A gang spans several nodes only if `JobSpec.nodes` allows it.
        memory_bytes: Memory of the device that this run may use.
        speeds: Relative speed for each job class: rate on this device / rate on a typical device of its model. The
            class "" stands for all classes that are not named. A missing value is 1.
        threads: Number of processor threads; 0 for any other device.
    """

    name: str
    node: str
    memory_bytes: int
    speeds: tuple[tuple[str, float], ...] = ()
    threads: int = 0

    @property
    def memory_is_watched(self) -> bool:
        """Whether memory is watched as it grows instead of limited at allocation: true on processors."""
        return self.threads > 0

    def speed(self, job_class: str) -> float:
        """Relative speed of a job class: rate on this device / rate on a typical device of its model."""
        known = dict(self.speeds)
        return known.get(job_class, known.get("", 1.0))


Setting = tuple[tuple[str, float | str], ...]
"""Sorted (knob, value) pairs. The empty setting is the default: the device as it was found."""

Packing = tuple[tuple[str, ...], ...]
"""Job classes in each lane of a device, without its empty lanes. Both the classes and the lanes are sorted."""


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """Best setting of a packing, from an earlier search.

    Attributes:
        slower: Largest ratio over the jobs: iteration time at the setting / iteration time at the default setting.
    """

    packing: Packing
    setting: Setting
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Solo:
    """Measurements of a job class alone on its device, at the default setting.

    Attributes:
        family: Script of the class. Jobs of one script behave alike.
        iteration_s: Time (s) of a training iteration.
        power_w: Mean power (W) of the device while the job runs; None without a meter.
        idle_w: Power (W) of the idle device; None without a meter.
        busy: Part of the time, in [0, 1], in which work ran on the device.
        memory_busy: Part of the time, in [0, 1], in which the device memory was read or written.
    """

    family: str = ""
    iteration_s: float | None = None
    power_w: float | None = None
    idle_w: float | None = None
    busy: float | None = None
    memory_busy: float | None = None


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """Predicted speed of a job class beside a neighbour in another lane, at the default setting.

    Attributes:
        one: Class that the speed is about.
        other: Class of the neighbour.
        speed: Relative speed in (0, 1]: rate beside the neighbour / rate alone.
        error: Standard deviation of `speed`.
    """

    one: str
    other: str
    speed: float
    error: float


@dataclass(frozen=True, slots=True)
class ColocationMeasurement:
    """Measurement of co-located jobs at the default setting.

    Attributes:
        classes: Class of each job.
        speeds: Relative speed of each job: rate beside its neighbours / rate alone.
        power_w: Mean power (W) of the device; None without a meter.
    """

    classes: tuple[str, ...]
    speeds: tuple[float, ...]
    power_w: float | None


class MeasurementStatus(Enum):
    """Validity of a measurement."""

    MEASURED = "measured"
    CENSORED = "censored"
    """The measurement stopped early because a job was clearly too slow: the times are lower bounds."""
    CONTAMINATED = "contaminated"
    """Something other than the setting determined the result."""
    FAILED = "failed"
    """The setting could not be applied."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of running a packing at one setting for a while.

    Attributes:
        setting: The setting.
        status: Validity of the result.
        power_w: Mean power (W) of the device; None without a meter.
        joules: Energy (J) that the device spent; None without a meter.
        duration_s: Wall time (s) of the measurement.
        times_s: Seconds per iteration of each job while it holds its turn.
        shares: Part of the time, in [0, 1], in which each job held its turn.
        rates: Iterations per second of each job, with its waits for the turn and for data.
        achieved: Observed value of each knob: the mean of a clock, the last reading of any other knob. Knobs that
            cannot be read are left out.
        throttles: Reasons for lower clocks during the measurement, in words.
        temperature_c: Mean temperature of the device (degrees Celsius); None if it cannot be read.
        note: Reason for a status other than `MEASURED`, in words.
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
    """Decisions about a run that were made before it began.

    Attributes:
        policy: Name of the policy.
        lanes_per_device: Number of lanes of each device. Their budgets are equal shares of its memory, except under a
            policy that packs: its lanes share the whole memory.
        places_per_lane: Most jobs in one lane.
        shared_context: Whether the jobs of a device share one context (MPS). Then the unclean death of one job may have
            corrupted its neighbours.
        profile: Whether a job of a class without a profile is measured in a window.
        search: Whether the best setting of a packing is searched if it is not known.
        preempt: Whether movable jobs give up their places to jobs that the policy puts before them. Possible only if
            every device is one lane of one place.
        options: Parameters of the policy, as (name, value) pairs.
        past_gpu_s: Total GPU-seconds of each past job, for policies that learn from them.
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
    """Attempts of a job in earlier sessions of a resumed run.

    Attributes:
        attempts: Number of attempts, including those that were cut off.
        failures: Number of failures that count against the retries of the job.
        out_of_memory: Whether the job ran out of its share of the memory of a lane.
    """

    attempts: int = 0
    failures: int = 0
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Description of a job for the core. The driver alone knows how to start it.

    Attributes:
        name: Name, unique in the run.
        job_class: Key of the profile: jobs of one class share it.
        gpus: Number of devices that the job needs at once, all or nothing.
        nodes: Most nodes that these devices may span; None for any number.
        priority: Priority; higher goes first.
        iterations: Total number of training iterations; None if unknown.
        service_s: Total turn time (s) that the job needs alone at the default setting; None if unknown before it runs.
        phases: Number of epochs and turn time (s) of each epoch, phase by phase, from the profile or the history of the
            job; empty if unknown.
        power_w: Power (W) of each of its devices above the idle device; None if unknown.
        movable: Whether the job can be stopped at any boundary and continue elsewhere.
        widest: Most devices that the job can use, at least 1. It exceeds `gpus` only if the job is movable.
        retries: Number of retries after failures.
        memory: Measured memory demand; None before the first profile.
        earlier_attempts: Attempts of the job in earlier sessions of the run.
        profiled: Whether the class has a profile.
        solo: Other measurements of the class alone; None if there are none.
        slowdown_limit: Largest slowdown that the job accepts, at least 1; None for no limit. See
            `ecoshare.jobs.schema.SLOWDOWN`.
        fused: Whether the job may share a process with jobs of its script in its lane.
        sweep: Name of the sweep that the job is a trial of; empty if it is none.
        values: Values, as text, in which the trial differs from other trials of the sweep.
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
    slowdown_limit: float | None = None
    fused: bool = False
    sweep: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StoppingSpec:
    """Early stopping of the trials of a sweep: see `core/early_stopping.py`.

    Attributes:
        rule: Name of the rule: `asha`, `median` or `halving`.
        grace: Number of steps that every trial may do.
        reduction: Reduction factor of `asha` and `halving`: one trial in `reduction` goes on from each rung.
        steps: Number of steps of a whole trial; 0 if unknown.
    """

    rule: str
    grace: int = 1
    reduction: int = 3
    steps: int = 0


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """Reports of a trial in an earlier session of the run.

    Attributes:
        name: Name of the trial.
        completed: Whether the trial did all its steps.
        values: Reported values, the first one first.
    """

    name: str
    completed: bool
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Description of a sweep for the core. The sampler chooses the values of its trials.

    Attributes:
        name: Name, unique among the jobs of the run.
        parallel: Most trials at once, including those that wait for a place.
        maximise: Whether larger reported values are better.
        early_stopping: Rule of early stopping; None for no rule, or if the sampler has its own.
        drawn: Number of trials that earlier sessions have drawn.
        earlier_trials: Trials of earlier sessions that have ended.
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
    """The job exited with a code other than 0."""
    CRASHED = "crashed"
    """A signal that ecoshare did not send ended the job."""
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    """A `KillJob` command ended the job."""
    PRUNED = "pruned"
    """Early stopping ended the trial."""
    LOST = "lost"
    """The job died with its supervisor, or with another job in the same process."""
    MOVED_OUT = "moved out"
    """The job left a shared process because it needs a process of its own."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that an attempt of a job has used so far.

    Attributes:
        iterations: Number of training iterations done.
        eval_iterations: Number of inference iterations done.
        held_s: Time (s) in which the attempt held its turn.
        waited_s: Time (s) of waiting for the turn between its first boundary and its last.
        span_s: Wall time (s) from its first boundary to its last.
        cpu_s: Processor time (s) of all its processes.
        peak_bytes: Largest memory seen, on the device or, on processors, as proportional set size.
        longest_wait_s: Longest single wait (s) for the turn.
        handovers: Number of times that the attempt got the turn.
        left_s: Turn time (s) until the end, if the driver knows it better than iterations and their times tell; else
            None.
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
        """Number of iterations of both kinds."""
        return self.iterations + self.eval_iterations

    @property
    def iteration_s(self) -> float | None:
        """Mean turn time (s) of a training iteration and the inference between two; None before two are done.

        The mean covers the time from the first boundary to the last, because the script starts up before the first one.
        """
        if self.iterations < 2:
            return None
        return max(0.0, self.span_s - self.waited_s) / (self.iterations - 1)


@dataclass(frozen=True, slots=True)
class RunOpened:
    """First event of a run. It holds everything that later decisions depend on, so a log replays on its own.

    Attributes:
        schema: Version of the events and commands: `SCHEMA`.
        known_settings: Best settings of packings, from earlier runs.
        colocations: Co-location measurements of earlier runs, the oldest first.
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
    """A job has arrived: it may be started from now on.

    Attributes:
        answers: Id of the `AskSampler` command that this event answers; 0 if it answers none.
    """

    at_s: float
    job: JobSpec
    answers: int = 0


@dataclass(frozen=True, slots=True)
class SweepOpened:
    """A sweep has begun: its sampler may be asked for trials from now on."""

    at_s: float
    sweep: SweepSpec


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A sampler has no more trials. It answers an `AskSampler` in place of a `JobArrived`.

    Attributes:
        command: Id of the `AskSampler` command.
        error: Reason, if the sampler has failed; else empty.
    """

    at_s: float
    command: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """A trial has reported a value.

    Attributes:
        step: Number of values that the trial has reported, including this one.
        halt: Reason if the sampler's own rule ends the trial here; else empty.
    """

    at_s: float
    job: str
    step: int
    value: float
    halt: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """A command was carried out. The resources that it took or freed count from now on.

    For a `WakeAt` command, the time has come.
    """

    at_s: float
    command: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A command failed and changed nothing."""

    at_s: float
    command: int
    error: str


@dataclass(frozen=True, slots=True)
class IterationsDone:
    """A job has made progress. The driver sends this event about once a second while the progress changes."""

    at_s: float
    job: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class JobExited:
    """An attempt of a job has ended, and its exit record is written.

    Attributes:
        exit_code: Exit code in the convention of a shell: 128 + n for signal n; None if unknown.
        reason: One line for the user; empty for success.
        usage: Resources that the whole attempt has used.
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
    """The window of a `ProfileJob` command is over, and all jobs of the device run again.

    Attributes:
        command: Id of the `ProfileJob` command.
        memory: Memory demand of the class; None if it is unknown.
        error: Reason if there is no profile; empty if there is one.
        solo: Other measurements of the class; None if there are none.
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
        setting: Setting to measure next. After the search it is the best one, or the default if none is feasible.
        over: Whether the search is over.
        note: Reason for the end of the search, in words.
        slower: Largest ratio over the jobs: iteration time at the best setting / iteration time at the default setting.
    """

    at_s: float
    command: int
    setting: Setting
    over: bool = False
    note: str = ""
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A planner has answered an `AskPlanner`.

    Attributes:
        shares: Share of the time, in [0, 1], for each job by name.
    """

    at_s: float
    command: int
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class InterferencePredicted:
    """An adviser has answered an `AskInterference`.

    Attributes:
        pairs: Speeds of all pairs of the classes that the question named.
        prices: Price of each class: joules that one second of its work alone is worth; empty if no power is known.
    """

    at_s: float
    command: int
    pairs: tuple[PairSpeed, ...]
    prices: dict[str, float]


@dataclass(frozen=True, slots=True)
class SettingMeasured:
    """The measurement of a `MeasureSetting` command is over."""

    at_s: float
    command: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run must end: the user stopped it, or it has done what it was started for.

    Attributes:
        at_once: Whether running jobs are killed now. Otherwise they end at their next boundaries.
    """

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
