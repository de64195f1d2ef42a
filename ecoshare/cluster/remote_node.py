"""A node on another machine, as its run sees it: commands go to its agent, and its events come back.

A node is lost when its agent has ended, or when nothing was heard of it for some time. Its devices fail then. Its
attempts count as ended only when the lease of the agent is over, since they may go on until then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Concatenate, ParamSpec

from ecoshare.base.attempt import GangPart, Outcome, Usage
from ecoshare.cluster.agent_calls import AgentCalls, Call, FilePart, RunCalls
from ecoshare.cluster.cluster_node import AgentLine
from ecoshare.cluster.links import NodeStart
from ecoshare.cluster.remote_gang import RemoteGang
from ecoshare.cluster.shipment import NodeFiles
from ecoshare.core.commands import Command, MeasureSetting, ProfileJob, StartJob
from ecoshare.core.events import DeviceFailed, Event, IterationsDone, JobExited, Profiled, Refused
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.knob import DeviceKnobs
from ecoshare.knowledge.profile import Profile
from ecoshare.lane.messages import Ready
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.record.run_documents import recorded_end
from ecoshare.record.samples import Line
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, NodeRun

P = ParamSpec("P")

BEAT_S = 1.0
"""Time (s) between two beats of the run."""

LEASE_S = 15.0
"""Default time (s) without a message of the run after which an agent ends all that it has started."""

_ENDS_WITHIN_S = 5.0
"""Time (s) that an agent takes to end all that it has started, once its lease is over."""

_METER_WITHIN_S = 6.0
_FINISHES_WITHIN_S = 20.0
_CLOSES_WITHIN_S = 60.0
"""Longest times (s) for the first sample, for the last one, and to end all and put the devices back."""


@dataclass(slots=True)
class RemoteClaims:
    """Claimed devices of all nodes; see `HeldClaims`."""

    unrestored: list[Restored] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """Facts about a remote node.

    Attributes:
        line: The way to its agent.
        start: The machine.
        devices: Names of its devices in the run.
        knobs: Knobs of each claimed device that can still be set, by its name in the run.
        claims: Gets what becomes of the claimed devices.
        keep_profile: Keeps a profile that the node has made.
        files: Files of the node, if it has a run folder of its own; None if it shares that of the run.
        timeout_s: Time (s) without a message of the agent after which the node counts as lost.
        lease_s: Time (s) without a message of the run after which the agent ends all that it has started.
    """

    line: AgentLine
    start: NodeStart
    devices: Sequence[str]
    knobs: MutableMapping[str, DeviceKnobs]
    claims: RemoteClaims
    keep_profile: Callable[[Profile], None]
    files: NodeFiles | None
    timeout_s: float
    lease_s: float


@dataclass(slots=True)
class _Live:
    """Attempt that the agent was asked to start, and that has no reported end; `gang` has more ranks elsewhere.

    The usage is the last one that was heard, by a reading or by an event.
    """

    attempt: int
    command: int
    gang: RemoteGang | None = None
    reading: AttemptReading | None = None
    usage: Usage = field(default_factory=Usage)


class RemoteNode:
    """A node on another machine.

    Attributes:
        lost: Reason why the node is lost, one line; empty while it is not.
        ready: Start message of the server of its lanes; None before it has loaded torch.
        live: Attempts in progress, by job.
    """

    def __init__(
        self,
        setup: NodeSetup,
        run: NodeRun,
        hear_sample: Callable[[Line], None],
        owners: MutableMapping[str, RemoteNode | RemoteGang],
    ) -> None:
        """A node that has been opened.

        Args:
            setup: Facts about the node.
            run: The run.
            hear_sample: Gets each line of the samples.
            owners: Node or gang of each job in progress, of all nodes. Jobs of this one are added and taken out.
        """
        self._owners = owners
        self._setup, self._run, self._hear_sample = setup, run, hear_sample
        self.lost = ""
        self.ready: Ready | None = None
        self.live: dict[str, _Live] = {}
        self._devices: Mapping[str, DeviceReading] = {}
        self._profiling: set[int] = set()
        self._asks_port: dict[int, RemoteGang] = {}  # by the ID of the command that starts the gang
        self._heard_s = self._sent_s = self._run.now_s()
        self._is_heard = self._is_closing = False
        self._sampled, self._finished, self._closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    # Life

    async def keep(self) -> None:
        """Hear the agent, and send it a beat now and then, until the node is lost. A silent node becomes lost."""
        self._heard_s, self._is_heard = self._run.now_s(), True
        self._setup.line.hear(self._hear, self._lose)
        while not self.lost:
            silent_s = self._run.now_s() - self._heard_s
            if silent_s > self._setup.timeout_s:
                self._lose(f"nothing was heard of it for {silent_s:.0f} s")
                return
            self._call(AgentCalls.beat, self._run.stopping, self._run.live_jobs)
            await asyncio.sleep(BEAT_S)

    async def first_samples(self) -> None:
        await _within(self._sampled, _METER_WITHIN_S)

    async def finish(self) -> None:
        self._is_closing = True
        self._call(AgentCalls.finish)
        await _within(self._finished, _FINISHES_WITHIN_S)

    async def close(self) -> None:
        self._is_closing = True
        self._call(AgentCalls.close)
        if self._is_heard and not self.lost:
            await _within(self._closed, _CLOSES_WITHIN_S)
        await asyncio.to_thread(self._setup.line.close)

    def end_silent_server(self) -> None:
        self._call(AgentCalls.end_silent_server)

    def keep_only(self, names: Collection[str]) -> None:
        self._call(AgentCalls.keep_only, tuple(sorted(names)))

    # Readings

    @property
    def is_measuring(self) -> bool:
        return bool(self._profiling) and not self.lost

    def attempt(self, name: str) -> AttemptReading | None:
        """Last reading of a job in progress; None before the first, and after its end."""
        return self.live[name].reading if name in self.live else None

    def device(self, name: str) -> DeviceReading:
        """Last reading of a device."""
        found = self._devices.get(name, DeviceReading((), "", {}))
        return replace(found, failed=self._why_lost()) if self.lost else found

    # Commands

    @property
    def name(self) -> str:
        """Name of the node in the run."""
        return self._setup.line.name

    @property
    def devices(self) -> Sequence[str]:
        """Names of its devices."""
        return self._setup.devices

    @property
    def give_back(self) -> Callable[[], None] | None:
        return self._setup.start.give_back

    @property
    def address(self) -> str:
        """Address of the node for the other ones."""
        return self._setup.start.address

    def ask_port(self, command: int, gang: RemoteGang) -> None:
        if self.lost:
            gang.head_lost(self._why_lost())
            return
        self._asks_port[command] = gang
        self._call(AgentCalls.take_port, command)

    def carry_out(self, command: Command) -> None:
        """Pass a command on to the agent."""
        match command:
            case StartJob(job=job):
                self._owners[job] = self
                self.start(command)
                return
            case ProfileJob(id):
                self._profiling.add(id)
            case MeasureSetting():
                self._call(AgentCalls.most_times, command.id, self._run.most_s(command))
        self._call(AgentCalls.carry_out, command)

    def start(self, command: StartJob, part: GangPart | None = None, gang: RemoteGang | None = None) -> None:
        """Start a job, or the ranks of a gang that run here; see `GangNode`."""
        self.live[command.job] = _Live(command.attempt, command.id, gang)
        if self.lost:  # the core does not know it yet, and the job was never started
            self._end_lost(command.job)
            return
        job, files = self._run.job(command.job), self._setup.files
        if files is not None:
            job = files.placed(job)
        if part is not None:
            job = replace(job, part=part)
        self._call(AgentCalls.take_job, job, self._run.context_bytes(job.spec.job_class))
        if files is not None:
            for part_of_file in files.begin(command, part):
                self._call(AgentCalls.file_for_node, part_of_file)
        self._call(AgentCalls.carry_out, command)

    def _call(self, method: Callable[Concatenate[AgentCalls, P], object], *values: P.args, **names: P.kwargs) -> None:
        if not self.lost:
            self._setup.line.call(method, *values, **names)
            self._sent_s = self._run.now_s()

    # Calls of the agent; see `RunCalls`

    def _hear(self, found: Call) -> None:
        if self.lost:
            return
        self._heard_s = self._run.now_s()
        calls: RunCalls = self
        if found.is_answer or not hasattr(RunCalls, found.name):
            self._lose(f"its agent sends {found.name}")
        else:
            getattr(calls, found.name)(*found.values)

    def report(
        self, attempts: dict[str, AttemptReading], devices: dict[str, DeviceReading], notes: tuple[str, ...]
    ) -> None:
        self._devices = devices
        for name, reading in attempts.items():
            if name in self.live:
                self.live[name].reading, self.live[name].usage = reading, reading.usage
        self._run.profiler.notes.extend(note for note in notes if note not in self._run.profiler.notes)

    def server_ready(self, ready: Ready) -> None:
        self.ready = ready

    def samples(self, lines: tuple[Line, ...]) -> None:
        for line in lines:
            self._hear_sample(line)

    def sampled(self) -> None:
        self._sampled.set()

    def requests(self, service: str, attempt: int, found: tuple[RequestInterval, ...]) -> None:
        self._run.hear_requests(service, attempt, found)

    def port_taken(self, command: int, port: int) -> None:
        self._asks_port.pop(command).port_taken(port)

    def attempt_over(self, job: str, attempt: int) -> None:
        if self._has_first_rank(job):
            self._run.attempt_over(job, attempt)

    def profile_made(self, profile: Profile) -> None:
        self._setup.keep_profile(profile)

    def file_for_run(self, part: FilePart) -> None:
        if self._setup.files is not None:
            self._setup.files.write(part)
        else:
            self._lose("its agent sends files, and shares those of the run")

    def knobs_left(self, device: str, knobs: DeviceKnobs) -> None:
        self._setup.knobs[device] = knobs

    def finished(self) -> None:
        self._finished.set()

    def closed(self, unrestored: tuple[Restored, ...], notes: tuple[str, ...]) -> None:
        self._setup.claims.unrestored.extend(unrestored)
        self._setup.claims.notes.extend(notes)
        self._closed.set()

    def failed(self, error: str, hint: str, is_usage: bool) -> None:
        self._lose(error)

    def progress(self, job: str, usage: Usage) -> None:
        self.told(IterationsDone(0.0, job, usage))

    def told(self, event: Event) -> None:
        gang = self._gang_of(event)
        match event:
            case JobExited(job=job):
                self._forget(job)
            case IterationsDone(job=job, usage=usage) if job in self.live:
                self.live[job].usage = usage
            case Refused(command=command):
                if (asked := self._asks_port.pop(command, None)) is not None:
                    asked.has_no_port(event.error)
                    return
                for job in [name for name, own in self.live.items() if own.command == command]:
                    self._forget(job)
            case Profiled(command=command):
                self._profiling.discard(command)
        if gang is not None:
            gang.told(self, event)
        else:
            self._run.tell(lambda at_s: replace(event, at_s=at_s))

    def _gang_of(self, event: Event) -> RemoteGang | None:
        """Gang that an event is about: by its job, or by the command that it answers."""
        own = self.live.get(getattr(event, "job", ""))
        if own is not None:
            return own.gang
        command = getattr(event, "command", None)
        gangs = {id(each.gang): each.gang for each in self.live.values() if each.gang is not None}
        return next((gang for gang in gangs.values() if gang.has_asked(command)), None)

    def _has_first_rank(self, job: str) -> bool:
        """Whether a job runs here alone, or a gang has its rank 0 here."""
        own = self.live.get(job)
        return own is None or own.gang is None or own.gang.is_head(self)

    def _forget(self, job: str) -> None:
        own = self.live.pop(job, None)
        if own is not None and own.gang is None:
            del self._owners[job]

    # Loss

    def _why_lost(self) -> str:
        return f"the node {self._setup.line.name} is lost: {self.lost}"

    def _lose(self, reason: str) -> None:
        """Take note that the node is lost."""
        if self.lost:
            return
        self.lost = reason
        for waited in (self._sampled, self._finished, self._closed):
            waited.set()
        self._profiling.clear()
        for gang in self._asks_port.values():
            gang.head_lost(self._why_lost())
        self._asks_port.clear()
        if not self._is_closing:
            if any(device in self._setup.knobs for device in self._setup.devices):
                words = "its guard puts clocks and power back; `ecoshare restore` there tells whether any are left"
                self._run.profiler.notes.append(f"the node {self.name} was lost: {words}")
            for device in self._setup.devices:
                self._run.tell(partial(DeviceFailed, device=device, reason=self._why_lost()))
            self._run.begin(self._outlive())

    async def _outlive(self) -> None:
        """Wait until the jobs of the lost node have surely ended, and tell their ends: as their records say, if any."""
        over_s = self._sent_s + self._setup.lease_s + _ENDS_WITHIN_S
        await asyncio.sleep(max(0.0, over_s - self._run.now_s()))
        for name in list(self.live):
            self._end_lost(name)

    def _end_lost(self, name: str) -> None:
        """Tell the end of an attempt that does not run on the lost node any more."""
        own, recorded = self.live[name], None
        if self._has_first_rank(name):
            self._run.attempt_over(name, own.attempt)
            recorded = recorded_end(self._run.folder.job(name), own.attempt)
        if recorded is not None and (outcome := Outcome(recorded.outcome)).is_the_end:  # it ended unheard
            code, reason, usage = recorded.exit_code, recorded.reason, Usage(**recorded.usage)
        else:
            outcome, code, reason, usage = Outcome.DEVICE_FAILED, None, self._why_lost(), own.usage
        self.told(JobExited(0.0, name, own.attempt, outcome, code, reason, usage))


async def _within(event: asyncio.Event, most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()
