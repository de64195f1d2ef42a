"""Calls between a run and the agent of a node: one JSON object a line, with the name of a method and its arguments.

::

    run                                 agent
                 ◄── found ─────────    the machine has these devices (the agent says so unasked)
    ── why_unfit, limits_w, parking ──► each with an answer, before the node is opened
    ── open ──────►
                 ◄── its answer ────    guard, shared memory and contexts are ready
    ── take_job, most_times, take_port, file_for_node, carry_out ──►
    ── beat, each second ──►
                 ◄── told, progress, samples, requests, report, file_for_run, port_taken, ...
    ── finish ────►
                 ◄── finished ──────    the last samples are taken
    ── close ─────►
                 ◄── closed ────────    all is put back; the agent ends

Commands and events are the lines that the log of a run holds. The time of an event is not used: an event gets its time
when the run handles it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ecoshare.base import documents
from ecoshare.base.attempt import Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import Command
from ecoshare.core.events import Event
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

PROTOCOL = 9
"""Version of the calls. A run and its agents must have the same."""

P = ParamSpec("P")
R = TypeVar("R")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class NodeFound:
    """What an agent has found. It holds the devices until it ends.

    Attributes:
        protocol: Version of the calls: `PROTOCOL`.
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
class OpenNode:
    """The node that a run asks for.

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
        lease_s: Time (s) without a call of the run after which the agent ends all that it has started.
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


_PATIENT = set[str]()


def _patient(method: Method) -> Method:
    """Mark a call that may come some tenths of a second later: nothing is decided by it at once."""
    _PATIENT.add(method.__name__)
    return method


class AgentCalls(Protocol):
    """Calls of a run. A coroutine has an answer."""

    async def found(self) -> NodeFound:
        """Devices of the node. This answer comes first, and nothing asks for it."""
        ...

    async def why_unfit(self) -> str:
        """Reason with its remedy, one line, why no job could use the GPUs with the torch there; empty if jobs can."""
        ...

    async def limits_w(self) -> dict[str, tuple[float, ...]]:
        """Power limits (W) that each device takes now, ascending, by its name on the node."""
        ...

    async def parking(self) -> ParkingHost:
        """The machine, as it parks jobs."""
        ...

    async def open(self, opening: OpenNode) -> NodeOpened:
        """Open the node. The methods above may be called before, and those below after it."""
        ...

    def release_devices(self) -> None:
        """Give claimed devices back: those of another node cannot be set, so nothing is set anywhere."""
        ...

    def take_job(self, job: NodeJob, context_bytes: int) -> None:
        """Take a job that the next command starts.

        Args:
            job: The job.
            context_bytes: Memory (bytes) of a process of its class outside its allocator.
        """
        ...

    def file_for_node(self, part: FilePart) -> None:
        """Take a part of a file that a job needs."""
        ...

    def take_port(self, command: int) -> None:
        """Take a port for the ranks of a gang over several nodes: `port_taken` follows, or `Refused`.

        Args:
            command: ID of the command that starts the gang.
        """
        ...

    def most_times(self, command: int, most_s: Mapping[str, float] | None) -> None:
        """Take the most times of a measurement, whose command follows.

        Args:
            command: ID of the command.
            most_s: See `RunSearches.most_s`.
        """
        ...

    def beat(self, stopping: bool, live_jobs: int) -> None:
        """Hear that the run goes on. Each call renews the lease of a node; this one comes each second.

        Args:
            stopping: Whether the run is being stopped.
            live_jobs: Number of jobs that have not ended.
        """
        ...

    def keep_only(self, names: tuple[str, ...]) -> None:
        """Forget all other jobs, which have ended."""
        ...

    def end_silent_server(self) -> None:
        """Kill the server of the lanes if a job is left."""
        ...

    def carry_out(self, command: Command) -> None:
        """Carry out a command of the core."""
        ...

    def finish(self) -> None:
        """Take the last samples. No more commands follow."""
        ...

    def close(self) -> None:
        """End all that is left, put the devices back, and end."""
        ...


class RunCalls(Protocol):
    """Calls of an agent."""

    def server_ready(self, ready: Ready) -> None:
        """Hear that the server of the lanes has loaded torch."""
        ...

    def sampled(self) -> None:
        """Hear that the first sample of each device is taken, or does not come."""
        ...

    @_patient
    def samples(self, lines: tuple[Line, ...]) -> None:
        """Take lines of the samples."""
        ...

    def requests(self, service: str, attempt: int, found: tuple[RequestInterval, ...]) -> None:
        """Take intervals that a service has recorded."""
        ...

    def knobs_left(self, device: str, knobs: DeviceKnobs) -> None:
        """Hear that a device, by its name in the run, has lost a knob. The event that tells of it follows.

        Args:
            device: Name of the device in the run.
            knobs: Knobs that can still be set.
        """
        ...

    def port_taken(self, command: int, port: int) -> None:
        """Take a port; see `take_port`."""
        ...

    def attempt_over(self, job: str, attempt: int) -> None:
        """Hear that an attempt has ended, and all its files are written. The event follows."""
        ...

    def profile_made(self, profile: Profile) -> None:
        """Take a profile. The event that tells of it follows."""
        ...

    def file_for_run(self, part: FilePart) -> None:
        """Take a part of a file that a job has written."""
        ...

    @_patient
    def report(
        self, attempts: dict[str, AttemptReading], devices: dict[str, DeviceReading], notes: tuple[str, ...]
    ) -> None:
        """Take the state of the node. It comes several times a second, and tells that the node goes on.

        Args:
            attempts: Attempts in progress, by job.
            devices: Devices, by name.
            notes: Notes for the user since the last report, one line each.
        """
        ...

    def told(self, event: Event) -> None:
        """Take an event."""
        ...

    @_patient
    def progress(self, job: str, usage: Usage) -> None:
        """Take the usage of a job so far."""
        ...

    def finished(self) -> None:
        """Hear that the last samples are taken."""
        ...

    def closed(self, unrestored: tuple[Restored, ...], notes: tuple[str, ...]) -> None:
        """Hear that all is ended and put back.

        Args:
            unrestored: Knobs that could not be restored.
            notes: Notes for the user about what was set, one line each.
        """
        ...

    def failed(self, error: str, hint: str, is_usage: bool) -> None:
        """Hear that the agent cannot go on. It ends all that it has started, and itself.

        Args:
            error: Reason, one line for the user.
            hint: Remedy; empty if there is none.
            is_usage: Whether the user has asked for something that does not exist.
        """
        ...


Send = Callable[[bytes, bool], object]
"""Sends a line; the second argument is whether it may come some tenths of a second later."""


class Call(NamedTuple):
    """A call, or the answer to one."""

    name: str
    values: tuple[Any, ...]
    is_answer: bool = False


def call(
    send: Send,
    method: Callable[Concatenate[Any, P], object],
    *values: P.args,
    **no_names: P.kwargs,
) -> None:
    """Call a method at the other end of a link.

    Args:
        send: Sends the line.
        method: Method of `AgentCalls` or `RunCalls`.
        values: Arguments, all by their places.
    """
    assert not no_names, "arguments travel by their places"
    name = method.__name__
    if name in _LOGGED:
        entry: Any = values[0]
        line = event_log.line_of(entry)
    else:
        fields = dict(zip(_arguments(name).names, values, strict=True))
        line = json.dumps({_CALL: name, **fields}, default=_plain).encode() + b"\n"
    send(line, name in _PATIENT)


def answer(send: Send, method: Callable[..., Coroutine[Any, Any, R]], value: R) -> None:
    """Answer a call of a method, which is a coroutine."""
    send(json.dumps({_ANSWER: method.__name__, "value": value}, default=_plain).encode() + b"\n", False)


_CALL, _ANSWER = "call", "answer"
_METHODS: dict[str, Any] = {
    name: method
    for calls in (AgentCalls, RunCalls)
    for name, method in vars(calls).items()
    if inspect.isfunction(method) and not name.startswith("_")
}
_LOGGED = (AgentCalls.carry_out.__name__, RunCalls.told.__name__)


def read(line: bytes) -> Call:
    """The call of a line, or the answer.

    Raises:
        ValueError: The line is none.
    """
    if line.startswith((b'{"command"', b'{"event"')):
        entry = event_log.entry_of(line)
        assert isinstance(entry, Command | Event), "its first key says so"
        return Call("carry_out" if isinstance(entry, Command) else "told", (entry,))
    fields = documents.parse(line, any_number=True)
    if not isinstance(fields, dict) or not fields.keys() & {_CALL, _ANSWER}:
        raise ValueError("it is no call")
    is_answer = _ANSWER in fields
    name = fields.pop(_ANSWER if is_answer else _CALL)
    if not isinstance(name, str) or name not in _METHODS or name in _LOGGED:
        raise ValueError(f"there is no call {name!r}")
    if is_answer and not inspect.iscoroutinefunction(_METHODS[name]):
        raise ValueError(f"the call {name!r} has no answer")
    try:
        if is_answer:
            return Call(name, (_answer_adapter(name).validate_python(fields.get("value")),), True)
        found = _arguments(name).adapter.validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, (name, *first['loc'])))}: {first['msg'].lower()}") from error
    return Call(name, tuple(getattr(found, each) for each in _arguments(name).names))


class _Arguments(NamedTuple):
    names: tuple[str, ...]
    adapter: TypeAdapter[Any]


@cache
def _arguments(name: str) -> _Arguments:
    hints = get_type_hints(_METHODS[name])
    del hints["return"]
    made = dataclasses.make_dataclass(name, hints.items(), frozen=True)
    return _Arguments(tuple(hints), TypeAdapter(made))


@cache
def _answer_adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(_METHODS[name])["return"])


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")
