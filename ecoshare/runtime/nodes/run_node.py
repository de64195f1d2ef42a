"""A node as its run sees it, and the run as its nodes see it: parts, commands, readings, devices that come and go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ecoshare.base.attempt import Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import MeasureSetting
from ecoshare.core.driving import NodeCommands
from ecoshare.core.events import Event
from ecoshare.devices.knob import KnobSpec
from ecoshare.devices.vendor import ContextSharing
from ecoshare.lane.messages import Ready
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Line
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.nodes.guard_client import Guard
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.planning.node_job import NodeJob


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


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Decisions about a run that its nodes need.

    Attributes:
        places: Most jobs that the core lets into a lane.
        parks: Whether jobs may be parked.
        serves: Whether a job of the plan is a service.
        only_tunes: Whether the run is for one search of a setting only.
        starts_many: Whether so many jobs are to be started that a cheap fork is worth its preparation.
    """

    places: int
    parks: bool = False
    serves: bool = False
    only_tunes: bool = False
    starts_many: bool = False


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Parts of a node that exist before its first command.

    Attributes:
        plan: Decisions about the run.
        job: Returns a job that a command starts, by its name.
        context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
        most_s: Most time (s) that an iteration of each job of a measurement may take; see `RunSearches.most_s`.
        folder: The run folder.
        shared: Private folder in memory, for lane tables and sockets.
        token: Token that marks the processes of the run.
        began_s: Monotonic time (s) at which the run was first opened.
        devices: The devices of the node, claimed.
        sharing: Decision about the contexts of the jobs.
        profiler: Makes profiles from windows, and stores them.
        guard: Cleans up after this process; kept alive during the run.
        host: The process that provides the server of the lanes.
    """

    plan: NodePlan
    job: Callable[[str], NodeJob]
    context_bytes: Callable[[str], int]
    most_s: Callable[[MeasureSetting], Mapping[str, float] | None]
    folder: RunFolder
    shared: Path
    token: str
    began_s: float
    devices: Sequence[ClaimedDevice]
    sharing: ContextSharing
    profiler: Profiler
    guard: Guard
    host: RunHost

    @property
    def on_processors(self) -> bool:
        """Whether jobs run on the processors; see `DeviceInfo.on_processors`."""
        return self.devices[0].device.on_processors

    @property
    def only_measures(self) -> bool:
        """Whether the run is for a profile or for a search only."""
        return self.plan.only_tunes or self.profiler.stops_the_run


def _never(_devices: JoiningDevices | LeavingDevices) -> None:
    raise AssertionError("no machine joins or leaves this run")


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The run as its nodes see it.

    Attributes:
        now_s: Returns the time (s) since the run was first opened.
        tell: Reports an event to the core. A function that gives None when its turn comes reports nothing.
        begin: Begins work beside the loop of the run; the end of the run cancels it.
        stopping: Returns whether the run is being stopped.
        live_jobs: Returns the number of jobs that have not ended.
        hear_samples: Each gets every line of the samples.
        hear_requests: Gets the intervals that a service has recorded, with its name and the number of its attempt.
        attempt_over: Called with the name and the attempt of a job that has ended, before the core is told.
        join: Adds devices of a machine that has come.
        leave: Does without the devices of a machine, if that can be now. It may be called again.
        waiting_jobs: Returns the number of jobs that wait for a place.
    """

    now_s: Callable[[], float]
    tell: Callable[[Callable[..., Event | None]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]
    stopping: Callable[[], bool]
    live_jobs: Callable[[], int]
    hear_samples: Sequence[Callable[[Line], None]]
    hear_requests: Callable[[str, int, Sequence[RequestInterval]], None]
    attempt_over: Callable[[str, int], None]
    join: Callable[[JoiningDevices], None] = _never
    leave: Callable[[LeavingDevices], None] = _never
    waiting_jobs: Callable[[], int] = lambda: 0


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
