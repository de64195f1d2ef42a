"""What the core asks of its driver, in the imperative.

Every command has an id, unique in the run. The driver answers `OpenLane`, `StartJob`, `MoveJob` and `ApplySetting`
with `Done` or `Refused`, and `WakeAt` with `Done`; `SetShares` and `DropJob` take effect at once; `KillJob` is answered
by the `JobExited` of its job, `ProfileJob` by `Profiled` and `MeasureSetting` by `SettingMeasured`. Questions are
answered by `SettingAdvised` (`AskSetting`), `InterferencePredicted` (`AskInterference`), `Planned` (`AskPlanner`), and
`JobArrived` or `Exhausted` (`AskSampler`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.core.events import ColocationMeasurement, Measurement, Packing, Setting, Solo


@dataclass(frozen=True, slots=True)
class OpenLane:
    """Make a lane: a memory budget and one turn."""

    id: int
    lane: int
    device: str
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start an attempt of a job in the lanes given, one for each device that it uses.

    Attributes:
        attempt: Counted from 1 over all sessions of the run.
        cap_bytes: Most memory that the job may rise to on each device.
        fused: In one process with others of its script there, where that can be.
    """

    id: int
    job: str
    attempt: int
    lanes: tuple[int, ...]
    cap_bytes: int
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A job's claim on the turn of its lane: see `ecoshare.core.turns`."""

    job: str
    rank: int
    weight: float


@dataclass(frozen=True, slots=True)
class SetShares:
    """Replace the claims of all jobs in a lane."""

    id: int
    lane: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class MoveJob:
    """Let a job that runs go on in another lane of its device, from its next boundary on.

    Where the job ends first, its `JobExited` is the answer.

    Attributes:
        lane: Where it goes.
    """

    id: int
    job: str
    attempt: int
    lane: int


@dataclass(frozen=True, slots=True)
class KillJob:
    """End an attempt of a job.

    Attributes:
        at_once: SIGKILL now; else at its next boundary, SIGTERM and a grace before SIGKILL.
        reason: One line for the user.
        pruned: It is a trial that others do better than, and ends as `PRUNED`.
    """

    id: int
    job: str
    attempt: int
    at_once: bool
    reason: str
    pruned: bool = False


@dataclass(frozen=True, slots=True)
class DropJob:
    """A trial that is paused is not started again: what it has saved is not needed any more.

    Attributes:
        reason: One line for the user.
    """

    id: int
    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProfileJob:
    """Measure a job that is warmed up: it runs alone on its device for a while, and the others there wait."""

    id: int
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ApplySetting:
    """Set a device's knobs; those that are not named go back to what they were found with."""

    id: int
    device: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class MeasureSetting:
    """Let the jobs of a device run at the setting that it has, and measure power and their times.

    Attributes:
        jobs: All that run there.
    """

    id: int
    device: str
    jobs: tuple[str, ...]
    setting: Setting


@dataclass(frozen=True, slots=True)
class AskSetting:
    """A question to an adviser, which may take its time.

    Attributes:
        adviser: `tuner`.
        packing: That is searched.
        measurement: What came of its last answer; None for the first question of a search.
    """

    id: int
    adviser: str
    device: str
    packing: Packing
    measurement: Measurement | None


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Tell when this time has come: something changes by itself then. An earlier one may be asked for meanwhile."""

    id: int
    at_s: float


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What a planner is told of a job.

    Attributes:
        needs_s: Turn time that it is expected to need still.
        age_s: Since it arrived.
        keeps: It goes on where it is.
        progress: Part of it that is done.
        whole_s: Turn time that all of it is expected to take.
        weight: Of its progress against that of others.
    """

    name: str
    gpus: int
    needs_s: float
    age_s: float
    keeps: bool = False
    progress: float = 0.0
    whole_s: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class AskPlanner:
    """A question to a planner: which share of the time should each of these jobs run?

    Attributes:
        options: Of the policy, by name.
    """

    id: int
    planner: str
    devices: int
    jobs: tuple[PlanJob, ...]
    options: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AskInterference:
    """A question to the adviser on neighbours: how fast do jobs of these classes run beside each other?

    Attributes:
        solos: What is known of each class alone.
        colocations: Packings that were measured, the oldest first.
        work_s: By class, seconds of work alone that are expected to be left.
        largest: Most jobs at once.
    """

    id: int
    solos: tuple[tuple[str, Solo], ...]
    colocations: tuple[ColocationMeasurement, ...]
    work_s: tuple[tuple[str, float], ...]
    largest: int


@dataclass(frozen=True, slots=True)
class AskSampler:
    """A question to the sampler of a sweep: what is its next trial?

    Attributes:
        number: Of the trial, counted from 0 over all sessions of the run.
    """

    id: int
    sweep: str
    number: int


Command = (
    OpenLane
    | StartJob
    | MoveJob
    | SetShares
    | KillJob
    | DropJob
    | ProfileJob
    | ApplySetting
    | MeasureSetting
    | AskSetting
    | AskInterference
    | AskPlanner
    | AskSampler
    | WakeAt
)
