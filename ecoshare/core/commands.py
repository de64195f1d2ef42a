"""Commands from the core to its driver, in the imperative.

Every command has an id, unique in the run. The driver answers most of them with an event::

    OpenLane, StartJob, MoveJob, ApplySetting    Done or Refused
    SetCaching                                   Done
    LimitMemory                                  Done or Refused
    ParkJob                                      Parked or Refused
    ResumeJob                                    Resumed
    WakeAt                                       Done
    KillJob                                      JobExited of its job
    ProfileJob                                   Profiled
    MeasureSetting                               SettingMeasured
    AwaitRequests                                Done or Refused
    AskSetting                                   SettingAdvised
    AskInterference                              InterferencePredicted
    AskPlanner                                   Planned
    AskSampler                                   JobArrived or Exhausted
    SetShares, DropJob                           no answer: they take effect at once
"""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.base.class_profile import LimitMeasurement, Solo
from ecoshare.base.measurement import ColocationMeasurement, Measurement, Packing, Setting
from ecoshare.base.segment import CarriedJob


@dataclass(frozen=True, slots=True)
class OpenLane:
    """Open a lane: one turn on a device.

    Attributes:
        budget_bytes: Memory of the device, which its lanes share. In logs of earlier versions, each lane of some
            policies had a part of it.
    """

    id: int
    lane: int
    device: str
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start an attempt of a job in the given lanes, one for each device that the job uses.

    Attributes:
        attempt: Number of the attempt, counted from 1 over all sessions of the run.
        cap_bytes: Memory limit of the job on each device.
        fused: Whether the job shares a process with jobs of its script in its lane, if possible.
    """

    id: int
    job: str
    attempt: int
    lanes: tuple[int, ...]
    cap_bytes: int
    fused: bool = False

    @classmethod
    def carried(cls, job: CarriedJob) -> StartJob:
        """Start of a job that goes on from the segment before, where the command had no answer yet."""
        assert job.command is not None, "it was answered"
        return cls(job.command, job.spec.name, job.attempt, job.lanes, job.cap_bytes, job.fused)


@dataclass(frozen=True, slots=True)
class Share:
    """Claim of a job on the turn of its lane: see `ecoshare.core.turns`."""

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
class SetCaching:
    """Let the waiting jobs of a device keep the caches of their allocators, or let them empty the caches.

    Caches are kept at first. The answer comes when no waiting job of the device has a cache that it may not keep. A job
    that the core starts on the device meanwhile is started only then, because it was promised the memory.
    """

    id: int
    device: str
    is_kept: bool


@dataclass(frozen=True, slots=True)
class LimitMemory:
    """Lower the memory limit of a running job on a GPU, at its next boundary.

    It is refused if the job keeps more than that. If the job ends first, its `JobExited` is the answer.

    Attributes:
        cap_bytes: Memory limit of the job from then on, its context included.
    """

    id: int
    job: str
    attempt: int
    cap_bytes: int


@dataclass(frozen=True, slots=True)
class ShareMemory:
    """Leave the memory of a device that this run does not use to the other runs there.

    Attributes:
        device: Name of the device.
        held_bytes: Memory that the jobs of the run there were promised, and that they may have in their caches.
        wanted_bytes: Memory that its waiting jobs would need, too.
        needed_bytes: Memory without which it can start no job there, if it has none; 0 otherwise.
        number: Number of the last `MemoryLeft` that was known then; 0 before the first.
    """

    id: int
    device: str
    held_bytes: int
    wanted_bytes: int
    needed_bytes: int
    number: int


@dataclass(frozen=True, slots=True)
class ParkJob:
    """Move the device memory of a running job to the host, from its next boundary on.

    The process then waits, and the job has no place. If the job ends first, its `JobExited` is the answer.
    """

    id: int
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ResumeJob:
    """Move the memory of a parked job back to its device, and let the job take turns in its lane again.

    If that fails, the attempt ends, and its `JobExited` is the answer.

    Attributes:
        lane: Number of the lane in which the job was parked.
    """

    id: int
    job: str
    attempt: int
    lane: int


@dataclass(frozen=True, slots=True)
class MoveJob:
    """Move a running job to another lane of its device at its next boundary.

    If the job ends first, its `JobExited` is the answer.

    Attributes:
        lane: Number of the lane that the job moves to.
    """

    id: int
    job: str
    attempt: int
    lane: int


@dataclass(frozen=True, slots=True)
class KillJob:
    """End an attempt of a job.

    Attributes:
        at_once: True sends SIGKILL now. False ends the job at its next boundary: SIGTERM, a grace period, SIGKILL.
        reason: One line for the user.
        pruned: Whether early stopping ends this trial; its outcome is then `PRUNED`.
    """

    id: int
    job: str
    attempt: int
    at_once: bool
    reason: str
    pruned: bool = False


@dataclass(frozen=True, slots=True)
class DropJob:
    """Give up a job without a process: a paused trial, a job that services keep out of every lane, a cancelled job.

    Attributes:
        reason: One line for the user.
        cancelled: Whether the user has cancelled the job.
        pruned: Whether early stopping ends the trial.
    """

    id: int
    job: str
    reason: str
    cancelled: bool = False
    pruned: bool = False


@dataclass(frozen=True, slots=True)
class ProfileJob:
    """Measure a warm job in a profiling window: it runs alone on its device while the other jobs there wait."""

    id: int
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ApplySetting:
    """Set the knobs of a device. Knobs that are not named return to the values that they were found with."""

    id: int
    device: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class MeasureSetting:
    """Measure power and iteration times while the jobs of a device run at its present setting.

    Attributes:
        jobs: Names of the jobs of the packing, sorted.
        evaluating: Names of those that evaluate; the others train.
    """

    id: int
    device: str
    jobs: tuple[str, ...]
    setting: Setting
    evaluating: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AwaitRequests:
    """Wait until the services of a device have recovered from a setting: the answer is `Done`.

    They have recovered when each has answered all its requests once, and few requests of the last minute missed their
    target. If that takes too long, the answer is `Refused`.

    Attributes:
        jobs: Names of the services, sorted.
        missed_share: Largest part of the requests of the last minute that may have missed the target.
        most_s: Longest wait (s).
    """

    id: int
    device: str
    jobs: tuple[str, ...]
    missed_share: float
    most_s: float


@dataclass(frozen=True, slots=True)
class AskSetting:
    """Ask an adviser for the next setting of a packing. The answer may take a while.

    Attributes:
        adviser: Name of the adviser; always `tuner`.
        packing: Packing for which the best setting is searched.
        measurement: Result of the setting that the adviser named last; None for the first question of a search.
        last: Whether the search must end with this answer: the services did not recover from the setting.
        evaluating: Names of the measured jobs that evaluated; the others trained.
    """

    id: int
    adviser: str
    device: str
    packing: Packing
    measurement: Measurement | None
    last: bool = False
    evaluating: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskPower:
    """Ask the power adviser how a packing responds to the power limit of its device.

    Attributes:
        limits_w: Power limits (W) of the device, ascending.
        measurements: Measurements of the packing so far.
    """

    id: int
    device: str
    packing: Packing
    limits_w: tuple[float, ...]
    measurements: tuple[LimitMeasurement, ...]


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Answer when this time has come. Meanwhile the core may ask for an earlier time, too."""

    id: int
    at_s: float


@dataclass(frozen=True, slots=True)
class PlanJob:
    """Description of a job for a planner.

    Attributes:
        gpus: Number of devices that the job needs.
        needs_s: Turn time (s) that the job is expected to need until its end.
        age_s: Time (s) since the job arrived.
        keeps: Whether the job keeps its device.
        progress: Part of the job that is done, in [0, 1].
        whole_s: Turn time (s) that the whole job is expected to take.
        weight: Weight of the progress of this job in the planner's objective.
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
    """Ask a planner for the share of time that each of these jobs should run.

    Attributes:
        planner: Name of the planner in `ecoshare/advisers/planners`.
        devices: Number of devices that the jobs share.
        options: Options of the policy, as (name, value) pairs.
    """

    id: int
    planner: str
    devices: int
    jobs: tuple[PlanJob, ...]
    options: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AskInterference:
    """Ask the interference adviser how fast jobs of these classes run beside each other.

    Two classes stand for all that look alike: scripts of one family that were not measured.

    Attributes:
        solos: Class and its measurements alone.
        colocations: Measured co-locations, the oldest first.
        work_s: Class and expected work (s alone), summed over the jobs that have not ended of all that it stands for.
        largest: Most jobs at once on one device.
        jobs: Class and number of these jobs; empty if it is not told.
    """

    id: int
    solos: tuple[tuple[str, Solo], ...]
    colocations: tuple[ColocationMeasurement, ...]
    work_s: tuple[tuple[str, float], ...]
    largest: int
    jobs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AskSampler:
    """Ask the sampler of a sweep for its next trial.

    Attributes:
        number: Number of the trial, counted from 0 over all sessions of the run.
    """

    id: int
    sweep: str
    number: int


Command = (
    OpenLane
    | StartJob
    | SetCaching
    | LimitMemory
    | ShareMemory
    | ParkJob
    | ResumeJob
    | MoveJob
    | SetShares
    | KillJob
    | DropJob
    | ProfileJob
    | ApplySetting
    | MeasureSetting
    | AwaitRequests
    | AskSetting
    | AskInterference
    | AskPower
    | AskPlanner
    | AskSampler
    | WakeAt
)
