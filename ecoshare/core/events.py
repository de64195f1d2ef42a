"""Events: facts that a driver tells the core, in the past tense.

Every event has `at_s`: seconds since the run was opened, which never decrease. The log of a run is these events in
order. A fresh core that gets the same events gives the same commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import KnownResponse, MemoryDemand, PowerResponse, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec, SweepSpec
from ecoshare.base.measurement import ColocationMeasurement, JobPhase, KnownSetting, Measurement, PairSpeed, Setting
from ecoshare.base.segment import Segment

SCHEMA = 3
"""Version of the events and commands, written into `RunOpened`."""


@dataclass(frozen=True, slots=True)
class Config:
    """Decisions about a run that were made before it began.

    Attributes:
        policy: Name of the policy.
        lanes_per_device: Number of lanes of each device. They share its memory.
        places_per_lane: Most jobs in a lane when one starts there, itself included. Jobs behind a group may be more.
        shared_context: Whether the jobs of a device share one context (MPS). Then the unclean death of one job may have
            corrupted its neighbours.
        profile: Whether a job of a class without a profile is measured in a window.
        search: Whether the best setting of a packing is searched if it is not known.
        preempt: Whether movable jobs give up their places to jobs that the policy puts before them. Possible only if
            every device is one lane of one place.
        options: Parameters of the policy, as (name, value) pairs.
        past_gpu_s: Total GPU-seconds of each past job, for policies that learn from them.
        enforces_memory: Whether memory is enforced on the devices, as in live runs. Jobs are then promised an allowance
            above the demand of their class. Memory that a job gives back is free once its allocator is limited.
            Simulated jobs take exactly what they state.
        grows: Whether the memory that a job is promised on processors is no limit, as in live runs. Logs of earlier
            versions do not have it.
        host_bytes: Host memory of each node for the memory of parked jobs; 0 if no job is parked.
        displaces: Whether movable jobs give up their places in lanes of several places, too, and move to idle devices.
        power_budget_w: Power (W) that the limits of all devices together never exceed; 0 for no budget.
        budget_by_placement: Whether no limit is set, and the power budget only decides which jobs may start.
        tuning_limit: Time of an iteration under a power limit / time under the limit that was found, at most, as long
            as the power budget suffices for that on all devices; 0 for no such limit.
        shares_memory: Whether other runs may have a part of the memory of the devices. Then no job starts before
            `MemoryLeft`.
        counts_jobs: Whether the interference adviser is told how many jobs each class has. Logs of earlier versions do
            not have it.
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
    enforces_memory: bool = False
    grows: bool = False
    host_bytes: int = 0
    displaces: bool = False
    power_budget_w: float = 0.0
    tuning_limit: float = 0.0
    budget_by_placement: bool = False
    shares_memory: bool = False
    counts_jobs: bool = False

    @property
    def sets_limits(self) -> bool:
        """Whether power limits are set, to keep a power budget."""
        return self.power_budget_w > 0.0 and not self.budget_by_placement


@dataclass(frozen=True, slots=True)
class RunOpened:
    """First event of a run. It holds everything that later decisions depend on, so a log replays on its own.

    Attributes:
        schema: Version of the events and commands: `SCHEMA`.
        known_settings: Best settings of packings, from earlier runs.
        colocations: Co-location measurements of earlier runs, the oldest first.
        known_responses: Measurements of packings under power limits, from earlier runs with a power budget.
        segment: Facts that this segment of the log takes over; None at the beginning of a session.
    """

    at_s: float
    schema: int
    config: Config
    devices: tuple[Device, ...]
    seed: int = 0
    known_settings: tuple[KnownSetting, ...] = ()
    colocations: tuple[ColocationMeasurement, ...] = ()
    known_responses: tuple[KnownResponse, ...] = ()
    segment: Segment | None = None

    @property
    def lanes(self) -> dict[int, Device]:
        """Device of each lane, by the number of the lane.

        Lanes are numbered in the order of the devices. Those that a segment takes over keep their numbers.
        """
        kept = {}
        if self.segment is not None:
            devices = {each.name: each for each in self.devices}
            kept = {number: devices[name] for number, name in self.segment.lanes}
        known = {each.name for each in kept.values()}
        new = [each for each in self.devices if each.name not in known for _ in range(self.config.lanes_per_device)]
        return {**kept, **dict(enumerate(new, self.segment.lanes_made if self.segment is not None else 0))}


@dataclass(frozen=True, slots=True)
class ClassesKnown:
    """Jobs of new classes come to a run that stays open, and earlier runs have measured these; see `RunOpened`."""

    at_s: float
    known_settings: tuple[KnownSetting, ...] = ()
    colocations: tuple[ColocationMeasurement, ...] = ()
    known_responses: tuple[KnownResponse, ...] = ()


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
    """A sweep has begun: its sampler may be asked for trials once those of an earlier session have arrived.

    Attributes:
        sweep: The sweep.
        returning: Number of trials that an earlier session has left and that arrive next.
    """

    at_s: float
    sweep: SweepSpec
    returning: int = 0


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

    Attributes:
        limit_w: Power limit (W) that the device shows after an `ApplySetting`; None if it shows the one that was asked
            for, or none was.
    """

    at_s: float
    command: int
    limit_w: float | None = None


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
class Parked:
    """The device memory of a job is on the host, and its place is free. It answers a `ParkJob`.

    Attributes:
        usage: Resources that the attempt has used.
        took_s: Time (s) that the transfer took, without the time until the job reached a boundary.
    """

    at_s: float
    command: int
    usage: Usage
    took_s: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """The memory of a job is on its device again, and the job wants its turn. It answers a `ResumeJob`.

    Attributes:
        took_s: Time (s) that the transfer took.
    """

    at_s: float
    command: int
    took_s: float


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
        pairs: Speeds of all pairs of the classes that the question named, each with itself, too.
        prices: Price of each class: joules that one second of its work alone is worth; empty if no power is known.
    """

    at_s: float
    command: int
    pairs: tuple[PairSpeed, ...]
    prices: dict[str, float]


@dataclass(frozen=True, slots=True)
class PowerPredicted:
    """The power adviser has answered an `AskPower`.

    Attributes:
        response: Expected behaviour of the packing under each limit of the question, the lowest limit first.
    """

    at_s: float
    command: int
    response: PowerResponse


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


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The run must end when the jobs that have started end. The others do not start any more."""

    at_s: float


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A job or a sweep must end, and never begins again.

    Attributes:
        job: Name of the job or sweep. It may be one that has not arrived, and then never does.
        reason: One line for the user.
        at_once: Whether a running job is killed now. Otherwise it ends at its next boundary.
    """

    at_s: float
    job: str
    reason: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class HoldRequested:
    """A job must not start until it is released. It changes nothing for a job that has a place."""

    at_s: float
    job: str


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """A held job may start again."""

    at_s: float
    job: str


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """A job has another priority from now on."""

    at_s: float
    job: str
    priority: int


@dataclass(frozen=True, slots=True)
class RetryRequested:
    """A job that has failed or was cancelled runs again, from its next attempt on. Earlier attempts count no more.

    It arrives again, as any job does.
    """

    at_s: float
    job: str


@dataclass(frozen=True, slots=True)
class WorkOver:
    """All jobs but open-ended services have ended, and none is to come. The services need not go on."""

    at_s: float


@dataclass(frozen=True, slots=True)
class TargetMissed:
    """A service has missed its target for a minute. See `missed_targets`.

    Attributes:
        job: Name of the service.
        requests: Number of requests of that minute that were answered, failed or were refused.
        missed: Number of these that missed the target.
    """

    at_s: float
    job: str
    requests: int
    missed: int


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """A running job is in another phase, which is expected to last. Only told where settings may be changed.

    Attributes:
        job: Name of the job. A new attempt trains.
    """

    at_s: float
    job: str
    phase: JobPhase


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """A device has failed, and does not come back in this run. The jobs that use it begin again on other devices.

    Attributes:
        device: Name of the device.
        reason: One line for the user.
    """

    at_s: float
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class SliceChanged:
    """Other runs of the machine share the devices of the run, so that it has them in slices; see `slices.py`.

    Attributes:
        runs: Whether the run has its devices now.
        others: Number of other runs that want them.
    """

    at_s: float
    runs: bool
    others: int


@dataclass(frozen=True, slots=True)
class MemoryLeft:
    """Other runs of the machine leave this run a part of the memory of a GPU. No job starts beyond that.

    Attributes:
        device: Name of the device.
        memory_bytes: Memory of the device that the run may use from now on.
        others: Number of other runs on the device.
        number: Number of this event about the device, from 1.
    """

    at_s: float
    device: str
    memory_bytes: int
    others: int
    number: int


Event = (
    RunOpened
    | ClassesKnown
    | JobArrived
    | SweepOpened
    | Exhausted
    | Reported
    | Done
    | Refused
    | IterationsDone
    | JobExited
    | Parked
    | Resumed
    | Profiled
    | SettingAdvised
    | Planned
    | InterferencePredicted
    | PowerPredicted
    | SettingMeasured
    | StopRequested
    | DrainRequested
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | PriorityChanged
    | RetryRequested
    | WorkOver
    | TargetMissed
    | PhaseBegan
    | DeviceFailed
    | SliceChanged
    | MemoryLeft
)

UserRequest = CancelRequested | HoldRequested | ReleaseRequested | PriorityChanged | RetryRequested
"""Request of the user about one job."""

SettingAnswer = Done | Refused | SettingMeasured | SettingAdvised | PowerPredicted
"""Answer to a command of the setting selection or of the power budget."""
