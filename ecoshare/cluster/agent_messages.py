"""Messages between a run and the agent of a node: one JSON object a line.

::

    run                                 agent
                 ◄── NodeFound ────     the machine has these devices
    ── AskTorch ──►
                 ◄── TorchTold ────     whether torch can use its GPUs
    ── AskLimits ─►
                 ◄── LimitsTold ───     power limits, for a power budget
    ── AskParking ►
                 ◄── ParkingTold ──     memory of the machine, for parked jobs
    ── OpenNode ──►
                 ◄── NodeOpened ───     guard, shared memory and contexts are ready
    ── JobForNode, MostTimes, AskPort, FilePart, commands ──►
    ── RunBeat, each second ──►
                 ◄── events, SampleLines, ServiceRequests, NodeReport, FilePart, PortTaken, ...
    ── FinishNode ──►
                 ◄── NodeFinished ──    the last samples are taken
    ── CloseNode ──►
                 ◄── NodeClosed ────    all is put back; the agent ends

Events and commands are the lines that the log of a run holds. The time of an event is not used: an event gets its time
when the run handles it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from ecoshare.base import documents
from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import Command
from ecoshare.core.events import Event, IterationsDone
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.knob import DeviceKnobs
from ecoshare.devices.meter import PowerModel
from ecoshare.knowledge.profile import Profile
from ecoshare.lane.messages import Ready
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.record import event_log
from ecoshare.record.samples import Line
from ecoshare.runtime.measuring.profiling_window import Limits
from ecoshare.runtime.measuring.run_claims import ClaimReport, ClaimRequest
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, NodePlan
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.planned_limits import ParkingHost

PROTOCOL = 8
"""Version of the messages. A run and its agents must have the same."""


@dataclass(frozen=True, slots=True)
class NodeFound:
    """An agent has begun. It holds the devices until it ends.

    Attributes:
        protocol: Version of the messages: `PROTOCOL`.
        ecoshare: Version of ecoshare on the node.
        token: Token that marks the processes of the run on this node.
        devices: Devices of the node, with their names there.
        power_models: Power model of each device, by its name; None for none.
        is_shared: Whether another run uses one of the devices.
    """

    protocol: int
    ecoshare: str
    token: str
    devices: tuple[DeviceInfo, ...]
    power_models: dict[str, PowerModel | None]
    is_shared: bool


@dataclass(frozen=True, slots=True)
class AskTorch:
    """Tell whether torch can use the GPUs. It comes before the node is opened, if the node has GPUs."""


@dataclass(frozen=True, slots=True)
class TorchTold:
    """Answer to `AskTorch`, once the server of the lanes has loaded torch.

    Attributes:
        unfit: Reason, one line with its remedy, why no job could use the GPUs with it; empty if jobs can.
    """

    unfit: str


@dataclass(frozen=True, slots=True)
class AskLimits:
    """Tell the power limits that the devices take. It comes before the node is opened, or not at all."""


@dataclass(frozen=True, slots=True)
class LimitsTold:
    """Answer to `AskLimits`.

    Attributes:
        limits_w: Power limits (W) that each device takes now, ascending, by its name on the node.
    """

    limits_w: dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class AskParking:
    """Tell whether jobs can be parked. It comes before the node is opened, or not at all."""


@dataclass(frozen=True, slots=True)
class ParkingTold:
    """Answer to `AskParking`.

    Attributes:
        host: The machine, as it parks jobs.
    """

    host: ParkingHost


@dataclass(frozen=True, slots=True)
class OpenNode:
    """Open the node of a run.

    Attributes:
        run: Path of the run folder.
        now_s: Time (s) since the run was first opened.
        plan: Decisions about the run.
        lanes: Number of lanes of each device.
        names: Name of each device in the run, in the order of `NodeFound`.
        profiles: Folder of profiles.
        limits: Limits on the length of profiling windows.
        only_profiles: Whether the run is for a profile only.
        request: What the run may set.
        lease_s: Time (s) without a message of the run after which the agent ends all that it has started.
        ships: Whether the node sees none of these folders, and has its own.
    """

    run: str
    now_s: float
    plan: NodePlan
    lanes: int
    names: tuple[str, ...]
    profiles: str
    limits: Limits
    only_profiles: bool
    request: ClaimRequest
    lease_s: float
    ships: bool = False


@dataclass(frozen=True, slots=True)
class NodeOpened:
    """The node takes commands.

    Attributes:
        is_shared: Whether the jobs of a device share a context.
        evidence: Evidence for that, as `environment.json` has it.
        report: What has become of the request, by the names of the devices in the run.
        files: Copy of the shipped folder; empty if nothing is shipped.
    """

    is_shared: bool
    evidence: Any
    report: ClaimReport
    files: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseDevices:
    """Give claimed devices back: those of another node cannot be set, so nothing is set anywhere."""


@dataclass(frozen=True, slots=True)
class JobForNode:
    """A job that the next command starts.

    Attributes:
        job: The job.
        context_bytes: Memory (bytes) of a process of its class outside its allocator.
    """

    job: NodeJob
    context_bytes: int


@dataclass(frozen=True, slots=True)
class FilePart:
    """Part of a file of the run folder, if the node has one of its own.

    Attributes:
        path: Path of the file in the run folder.
        offset: Place (bytes) of the part. A part at 0 replaces the file.
        data: Content, in base64.
    """

    path: str
    offset: int
    data: str


@dataclass(frozen=True, slots=True)
class AskPort:
    """Take a port for the ranks of a gang over several nodes.

    Attributes:
        command: ID of the command that starts the gang.
    """

    command: int


@dataclass(frozen=True, slots=True)
class PortTaken:
    """Answer to `AskPort`; if there is no port, the answer is `Refused`."""

    command: int
    port: int


@dataclass(frozen=True, slots=True)
class MostTimes:
    """Most times of a measurement, whose command follows.

    Attributes:
        command: ID of the command.
        most_s: See `RunSearches.most_s`.
    """

    command: int
    most_s: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class RunBeat:
    """The run goes on. Each message of the run renews the lease of a node; this one comes each second.

    Attributes:
        stopping: Whether the run is being stopped.
        live_jobs: Number of jobs that have not ended.
    """

    stopping: bool
    live_jobs: int


@dataclass(frozen=True, slots=True)
class KeepOnly:
    """Forget all other jobs, which have ended."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndSilentServer:
    """Kill the server of the lanes if a job is left."""


@dataclass(frozen=True, slots=True)
class FinishNode:
    """Take the last samples. No more commands follow."""


@dataclass(frozen=True, slots=True)
class CloseNode:
    """End all that is left, put the devices back, and end."""


@dataclass(frozen=True, slots=True)
class ServerReady:
    """The server of the lanes has loaded torch."""

    ready: Ready


@dataclass(frozen=True, slots=True)
class FirstSamples:
    """The first sample of each device is taken, or does not come."""


@dataclass(frozen=True, slots=True)
class SampleLines:
    """Lines of the samples."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class ServiceRequests:
    """Intervals that a service has recorded."""

    service: str
    attempt: int
    found: tuple[RequestInterval, ...]


@dataclass(frozen=True, slots=True)
class KnobsLeft:
    """A device has lost a knob. The event that tells of it follows.

    Attributes:
        device: Name of the device in the run.
        knobs: Knobs that can still be set.
    """

    device: str
    knobs: DeviceKnobs


@dataclass(frozen=True, slots=True)
class AttemptOver:
    """An attempt has ended, and all its files are written. The event follows."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ProfileMade:
    """A profile was made. The event follows."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class NodeReport:
    """State of the node. It comes several times a second, and tells the run that the node goes on.

    Attributes:
        attempts: Attempts in progress, by job.
        devices: Devices, by name.
        notes: Notes for the user since the last report, one line each.
    """

    attempts: dict[str, AttemptReading]
    devices: dict[str, DeviceReading]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """The last samples are taken."""


@dataclass(frozen=True, slots=True)
class NodeClosed:
    """All is ended and put back.

    Attributes:
        unrestored: Knobs that could not be restored.
        notes: Notes for the user about what was set, one line each.
    """

    unrestored: tuple[Restored, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentFailed:
    """The agent cannot go on. It ends all that it has started, and itself.

    Attributes:
        error: Reason, one line for the user.
        hint: Remedy; empty if there is none.
        is_usage: Whether the user has asked for something that does not exist.
    """

    error: str
    hint: str = ""
    is_usage: bool = False


ToAgent = (
    AskTorch
    | AskLimits
    | AskParking
    | OpenNode
    | ReleaseDevices
    | JobForNode
    | FilePart
    | AskPort
    | MostTimes
    | RunBeat
    | KeepOnly
    | EndSilentServer
    | FinishNode
    | CloseNode
)
ToRun = (
    NodeFound
    | TorchTold
    | LimitsTold
    | ParkingTold
    | NodeOpened
    | ServerReady
    | FirstSamples
    | SampleLines
    | ServiceRequests
    | KnobsLeft
    | PortTaken
    | AttemptOver
    | ProfileMade
    | FilePart
    | NodeReport
    | NodeFinished
    | NodeClosed
    | AgentFailed
)
AgentMessage = ToAgent | ToRun | Command | Event

_KEY = "message"
_MESSAGES: dict[str, Any] = {each.__name__: each for each in get_args(ToAgent | ToRun)}

PATIENT = tuple(
    f'{{"{key}": "{kind.__name__}"'.encode()
    for key, kind in ((_KEY, NodeReport), (_KEY, SampleLines), (_KEY, FilePart), ("event", IterationsDone))
)
"""Beginnings of lines that may come to the run some tenths of a second later: it decides nothing by them at once."""


def encoded(message: AgentMessage) -> bytes:
    """A message as a line, with its end."""
    if isinstance(message, Command | Event):
        return event_log.line_of(message)
    name = type(message).__name__
    return json.dumps({_KEY: name, **_adapter(name).dump_python(message, mode="json")}).encode() + b"\n"


def decoded(line: bytes) -> AgentMessage:
    """The message of a line.

    Raises:
        ValueError: The line is no message.
    """
    if not line.startswith(b'{"' + _KEY.encode()):
        entry = event_log.entry_of(line)
        if not isinstance(entry, Command | Event):
            raise ValueError(f"a {type(entry).__name__} is no message of an agent")
        return entry
    fields = documents.parse(line, any_number=True)
    name = fields.pop(_KEY, None)
    if not isinstance(name, str) or name not in _MESSAGES:
        raise ValueError(f"there is no message {name!r}")
    try:
        found: AgentMessage = _adapter(name).validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{name}.{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
    return found


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_MESSAGES[name])
