"""A node as its run sees it, and the run as its nodes see it: parts, commands, readings, devices that come and go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ecoshare.base.attempt import Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import MeasureSetting
from ecoshare.core.driving import NodeCommands
from ecoshare.core.events import Event
from ecoshare.devices.knob import KnobSpec
from ecoshare.devices.occupancy import MemoryClaim
from ecoshare.devices.vendor import ContextSharing
from ecoshare.lane.messages import Ready
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.policy_names import places_of
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Line
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.nodes.guard_client import Guard
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class JoiningDevices:
    """Devices that the run uses from the next segment on; see `core/segments.py`.

    Attributes:
        devices: The devices, with the memory that jobs may use.
        environment: Facts for `environment.json`, to be added to those that it has.
        began: Called when the run has begun to use them.
    """

    devices: tuple[DeviceInfo, ...]
    environment: Mapping[str, Any]
    began: Callable[[], None]


@dataclass(frozen=True, slots=True)
class LeavingDevices:
    """Devices that the run does without from now on, if a segment can begin, no job uses them, and none waits.

    Attributes:
        names: Names of the devices.
        left: Called when the run does without them.
    """

    names: frozenset[str]
    left: Callable[[], None]


@dataclass(frozen=True, slots=True)
class AttemptReading:
    """Attempt in progress.

    Attributes:
        usage: Usage so far.
        lanes: Lane on each device of the job; the first one has its counters.
        turns: Lanes of which the attempt has the turn.
        waits_s: Time (s) for which it has waited for its turn so far; 0 if it has it or does not want it.
        silent_s: Time (s) for which it has held its turn without the end of an iteration; 0 without the turn.
    """

    usage: Usage
    lanes: tuple[int, ...]
    turns: tuple[int, ...]
    waits_s: float = 0.0
    silent_s: float = 0.0

    @property
    def holding(self) -> bool:
        """Whether the attempt has the turn of its first lane."""
        return bool(self.lanes) and self.lanes[0] in self.turns


@dataclass(frozen=True, slots=True)
class LaneReading:
    """Lane of a device.

    Attributes:
        holder: Job that has the turn; empty if none has it.
        waits: Number of waits for the turn in each bucket of `WAIT_BOUNDS_S`, and above the last bound.
        waited_s: Sum (s) of these waits.
    """

    holder: str
    waits: tuple[int, ...]
    waited_s: float


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Device of a node.

    Attributes:
        setting: Setting in force, with the knobs of services.
        failed: Reason why it has failed; empty if it works.
        lanes: Lanes of the device, by number.
    """

    setting: Setting
    failed: str
    lanes: Mapping[int, LaneReading]


class NodeReadings(Protocol):
    """Gives the readings of a node."""

    @property
    def knobs(self) -> Mapping[str, Sequence[KnobSpec]]:
        """Knobs of each device that may be set, by its name."""
        ...

    @property
    def in_progress(self) -> Collection[str]:
        """Jobs with an attempt in progress."""
        ...

    def attempt(self, name: str) -> AttemptReading:
        """Reading of a job in progress."""
        ...

    def device(self, name: str) -> DeviceReading: ...


_MANY = 50
"""Number of jobs from which cheap forks are worth their preparation: 0.15 to 0.35 s, against 6 to 15 ms a job."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Decisions about a run that its nodes need.

    Attributes:
        places: Most jobs that the core lets into a lane.
        parks: Whether jobs may be parked.
        serves: Whether a job of the plan is a service.
        only_tunes: Whether the run is for one search of a setting only.
        starts_many: Whether so many jobs are to be started that a cheap fork is worth its preparation.
        knows_phases: Whether phases of jobs count for the settings. A power budget deals its watts for training.
    """

    places: int
    parks: bool = False
    serves: bool = False
    only_tunes: bool = False
    starts_many: bool = False
    knows_phases: bool = True

    @classmethod
    def of(cls, plan: Plan) -> NodePlan:
        """Decisions of a plan."""
        return cls(
            places_of(plan.policy, plan.places),
            parks=bool(plan.host_bytes),
            serves=any(job.spec.service is not None for job in plan.jobs),
            only_tunes=plan.only_tune,
            starts_many=len(plan.jobs) + sum(each.options.count for each in plan.sweeps) >= _MANY,
            knows_phases=not plan.budget,
        )


@dataclass(frozen=True, slots=True)
class NodeMachine:
    """Machine that a run holds, before its first command there.

    Attributes:
        shared: Private folder in memory, for lane tables and sockets.
        devices: Devices of the machine, claimed.
        sharing: Decision about the contexts of the jobs.
        guard: Cleans up after this process; kept alive during the run.
        slices: Keys of the devices that other runs may share in slices; empty if none may.
        claims: Claim to the memory of each GPU among them, by its name.
    """

    shared: Path
    devices: Sequence[ClaimedDevice]
    sharing: ContextSharing
    guard: Guard
    slices: Collection[str] = ()
    claims: Mapping[str, MemoryClaim] = field(default_factory=dict)

    @property
    def on_processors(self) -> bool:
        """Whether jobs run on the processors; see `DeviceInfo.on_processors`."""
        return self.devices[0].device.on_processors


class NodeRun(Protocol):
    """The run as its nodes see it: `runtime/run.py`, or the agent of a node elsewhere.

    Attributes:
        folder: The run folder.
        token: Token that marks the processes of the run on the machine.
        began_s: Monotonic time (s) at which the run was first opened.
        profiler: Makes profiles from windows, and stores them.
        host: The process that provides the server of the lanes.
    """

    folder: RunFolder
    token: str
    began_s: float
    profiler: Profiler
    host: RunHost

    @property
    def for_nodes(self) -> NodePlan:
        """Decisions about the run."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the run is being stopped."""
        ...

    @property
    def live_jobs(self) -> int:
        """Number of jobs that have not ended."""
        ...

    def now_s(self) -> float:
        """Seconds since the run was first opened."""
        ...

    def tell(self, make: Callable[..., Event | None]) -> None:
        """Report an event to the core. A function that gives None when its turn comes reports nothing."""
        ...

    def warn(self, subject: str, words: str) -> None:
        """Tell of a trouble in all displays; without words it is over."""
        ...

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work beside the loop of the run; the end of the run cancels it."""
        ...

    def job(self, name: str) -> NodeJob:
        """A job that a command starts."""
        ...

    def context_bytes(self, job_class: str) -> int:
        """Memory (bytes) of a process of a job class outside its allocator."""
        ...

    def most_s(self, command: MeasureSetting) -> Mapping[str, float] | None:
        """Most time (s) that an iteration of each job of a measurement may take; see `RunSearches.most_s`."""
        ...

    def hear_sample(self, line: Line) -> None:
        """Take a line of the samples."""
        ...

    def hear_requests(self, service: str, attempt: int, found: Sequence[RequestInterval]) -> None:
        """Take intervals that an attempt of a service has recorded."""
        ...

    def attempt_over(self, job: str, attempt: int) -> None:
        """Hear that an attempt has ended, before the core is told."""
        ...


class RunNode(NodeCommands, NodeReadings, Protocol):
    """A node as its run sees it: `runtime/nodes/node.py` on this machine."""

    @property
    def ready(self) -> Ready | None:
        """Start message of the server of the lanes; None before it has loaded torch."""
        ...

    @property
    def is_measuring(self) -> bool:
        """Whether a window is open. The job may have ended, with its profile still to be stored."""
        ...

    @property
    def waited(self) -> bool:
        """Whether a run that only measures was stopped, because its programs waited and did nothing."""
        ...

    async def open(self) -> None:
        """Get the server of the lanes.

        Raises:
            OSError: The process cannot be created.
            UnfitEnvironment: The node cannot provide one.
        """
        ...

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Work that goes on beside the loop of the run until it is cancelled."""
        ...

    async def first_samples(self) -> None:
        """Wait a moment for the first sample of each device: joules are counted from there."""
        ...

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all other jobs, which have ended."""
        ...

    def end_silent_server(self) -> None:
        """Kill the server if a job is left after the time limit of a stop. The server does not answer then."""
        ...

    async def finish(self) -> None:
        """Take the last sample of each device, when all jobs have ended."""
        ...

    async def close(self) -> None:
        """End everything that is left, and restore the devices. Each step runs even if another one fails."""
        ...
