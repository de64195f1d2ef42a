"""The agent of a node: a program that carries out the commands of a run on its machine, and tells what becomes of them.

::

    stdin  ──► lines ──► Agent ──► Node ──► lanes, devices
    stdout ◄── lines ◄──────┘

The agent ends all that it has started when the run says so, when its stdin ends, or when it has heard nothing of the
run for the time of its lease. The run gives the jobs of a lost node to others only after that time, so that no job runs
twice. If the agent is killed, or hangs for that time, the guard of its machine does the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ecoshare.base.attempt import Outcome
from ecoshare.base.clock import SideTasks
from ecoshare.base.device import DeviceInfo
from ecoshare.cluster.agent_messages import (
    AgentMessage,
    AskLimits,
    AskParking,
    AskPort,
    AskTorch,
    AttemptOver,
    CloseNode,
    EndSilentServer,
    FilePart,
    FinishNode,
    FirstSamples,
    JobForNode,
    KeepOnly,
    KnobsLeft,
    LimitsTold,
    MostTimes,
    NodeClosed,
    NodeFinished,
    NodeOpened,
    NodeReport,
    OpenNode,
    ParkingTold,
    PortTaken,
    ProfileMade,
    ReleaseDevices,
    RunBeat,
    SampleLines,
    ServerReady,
    ServiceRequests,
    TorchTold,
    decoded,
)
from ecoshare.cluster.links import BegunAgent
from ecoshare.cluster.shipment import Shipment
from ecoshare.core.commands import MeasureSetting
from ecoshare.core.driving import node_methods
from ecoshare.core.events import Event, JobExited, Profiled, Refused, StopRequested
from ecoshare.devices.knob import DeviceKnobs
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.occupancy import Occupancy, why_not_alone
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane.files import make_folder
from ecoshare.record.run_folder import RunFolder, unwritable
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.run_claims import NodeClaims, claim_devices
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.node import Node, check_torch
from ecoshare.runtime.nodes.node_opening import guard_of, shared_contexts
from ecoshare.runtime.nodes.run_node import NodeParts, NodeRun
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.planned_limits import device_limits_w, parking_host

_REPORT_S = 0.5
"""Time (s) between two reports."""

_BY_SIGTERM = 128 + signal.SIGTERM
"""Exit code of a job that SIGTERM has ended."""

_SIGNALS_WITHIN_S = 1.0
"""Time (s) in which Slurm signals all processes of a node."""

_ENDS_OF_IT_WITHIN_S = 60.0
"""Time (s) in which jobs end because of the signal. Slurm kills them after its KillWait, which is 30 s by default."""


class RunGone(Exception):
    """The run is not heard any more. The text says why, in one line."""


class Agent:
    """Agent of a node, from the first message of a run to the last."""

    def __init__(self, begun: BegunAgent, send: Callable[[AgentMessage], None]) -> None:
        """An agent without a node yet.

        Args:
            begun: Parts of the agent that exist already.
            send: Sends a message to the run.
        """
        self._begun, self._send = begun, send
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._jobs: dict[str, NodeJob] = {}
        self._context_bytes: dict[str, int] = {}
        self._most_s: dict[int, dict[str, float] | None] = {}
        self._claims, self._told_knobs = NodeClaims(), dict[str, DeviceKnobs]()
        self._run = RunBeat(stopping=False, live_jobs=0)
        self._clock = begun.host.clock
        self._heard_s = self._clock.monotonic_s()
        self._terminated_s = -math.inf
        self._told_notes, self._told_profiles = 0, dict[str, Profile]()
        self._shipment: Shipment | None = None
        self._tasks = SideTasks()

    def hear(self, line: bytes | None) -> None:
        """Take a line of the run; None at its end. Called in the loop."""
        self._heard_s = self._clock.monotonic_s()
        self._inbox.put_nowait(line)

    async def serve(self, occupancy: Occupancy, models: Mapping[str, PowerModel | None]) -> None:
        """Carry out what a run asks for, to its end.

        Args:
            occupancy: Use of the devices.
            models: Power model of each device, by its name on this machine; None for none.

        Raises:
            EcoshareError: The node cannot go on.
            OSError: The disk is full.
        """
        while not isinstance(opening := await self._next(), OpenNode):
            match opening:
                case AskTorch():
                    self._send(TorchTold(await self._why_unfit(occupancy.devices)))
                case AskLimits():
                    self._send(LimitsTold(self._limits_w(occupancy.devices)))
                case AskParking():
                    self._send(ParkingTold(parking_host(occupancy.devices)))
                case _:
                    raise UsageError(f"an agent cannot begin with {type(opening).__name__}")
        with contextlib.ExitStack() as undo:
            parts, opened = self._parts(opening, occupancy, models, undo)
            began_s = parts.began_s
            self._node = Node(
                parts,
                NodeRun(
                    now_s=lambda: self._clock.monotonic_s() - began_s,
                    tell=partial(self._tell, began_s),
                    begin=self._tasks.begin,
                    stopping=lambda: self._run.stopping,
                    live_jobs=lambda: self._run.live_jobs,
                    hear_samples=[lambda line: self._send(SampleLines((line,)))],
                    hear_requests=lambda name, attempt, found: self._send(ServiceRequests(name, attempt, tuple(found))),
                    attempt_over=self._attempt_over,
                ),
            )
            self._profiler, self._guard = parts.profiler, parts.guard
            self._send(opened)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminated)
            notes: tuple[str, ...] = ()
            try:
                await self._drive(opening.lease_s)
                if self._shipment is not None:
                    self._folder.keep_log()
                    notes = self._shipment.end()
            finally:
                self._send(NodeClosed(self._claims.unrestored, (*self._claims.notes, *notes)))

    async def _drive(self, lease_s: float) -> None:
        beat = asyncio.create_task(self._guard.beat())
        self._heard_s = self._clock.monotonic_s()  # to open the node may have taken as long as a lease
        try:
            await self._node.open()
            async with self._tasks:
                for work in (*self._node.works(), self._report(), self._tell_ready(), self._keep_lease(lease_s)):
                    self._tasks.begin(work)
                await self._node.first_samples()
                self._send(FirstSamples())
                is_well = await self._carry_out()
            if is_well:
                await self._node.finish()
                self._send(self._report_now())
                self._send(NodeFinished())
                while not isinstance(await self._next(), CloseNode):
                    pass
        finally:
            await self._node.close()
            beat.cancel()

    def _parts(
        self,
        opening: OpenNode,
        occupancy: Occupancy,
        models: Mapping[str, PowerModel | None],
        undo: contextlib.ExitStack,
    ) -> tuple[NodeParts, NodeOpened]:
        begun, run, profiles = self._begun, Path(opening.run), Path(opening.profiles)
        if opening.ships:
            assert begun.unpacked is not None, "the command line says where the files are"
            self._shipment = Shipment(opening.run, begun.name, begun.unpacked, self._send)
            run, profiles = self._shipment.run, self._shipment.run / "own-profiles"
        elif not RunFolder(run).plan.is_file():
            raise UnfitEnvironment(
                f"{opening.run} is not there: the node and the run share no folder",
                "give --runs a folder on a file system that all nodes share, or ship the scripts with --ship",
            )
        folder = self._folder = RunFolder(run).node(begun.name, begun.log)
        try:
            make_folder(folder.own)
        except OSError as error:
            raise unwritable(folder.own, error) from error
        occupancy.tell(folder.path)
        last = undo.enter_context(contextlib.ExitStack())  # after the settings are restored
        cleanup.clear_dead()
        named = [replace(each, name=name) for each, name in zip(occupancy.devices, opening.names, strict=True)]
        self._claims, report = claim_devices(named, opening.request, self._why_not_alone)
        undo.callback(self._claims.restore)
        self._told_knobs = dict(report.knobs)
        devices = [
            ClaimedDevice(own, models[each.name], self._claims.settings.get(own.name))
            for own, each in zip(named, occupancy.devices, strict=True)
        ]
        guard = guard_of(begun.token, self._claims, opening.lease_s)
        last.callback(guard.dismiss)
        contexts = shared_contexts(occupancy.devices, opening.lanes, opening.plan.places, begun.shared, begun.token)
        sharing = undo.enter_context(contexts)
        undo.callback(folder.keep_log)
        profiler = Profiler(folder, ProfileStore(profiles), opening.limits, opening.only_profiles)
        parts = NodeParts(
            opening.plan,
            self._jobs.__getitem__,
            lambda job_class: self._context_bytes.get(job_class, 0),
            self._most_of,
            folder,
            begun.shared,
            begun.token,
            self._clock.monotonic_s() - opening.now_s,
            devices,
            sharing,
            profiler,
            guard,
            begun.host,
        )
        files = str(self._shipment.files) if self._shipment is not None else ""
        return parts, NodeOpened(sharing.is_shared, sharing.evidence, report, files)

    async def _why_unfit(self, devices: Sequence[DeviceInfo]) -> str:
        """Reason, with its remedy, why no job could use the devices with the torch here; empty if jobs can."""
        if (ready := await self._begun.host.ready()) is None:
            return "torch cannot be loaded: see `ecoshare doctor` there"
        try:
            check_torch(devices, ready)
        except UnfitEnvironment as error:
            return f"{error}: {error.hint}"
        return ""

    def _limits_w(self, devices: Sequence[DeviceInfo]) -> dict[str, tuple[float, ...]]:
        if reason := self._why_not_alone(devices):
            raise UnfitEnvironment(f"power limits cannot be set: {reason}")
        return {each.name: device_limits_w(each) for each in devices}

    def _why_not_alone(self, devices: Sequence[DeviceInfo]) -> str:
        return why_not_alone(devices, self._begun.shares_processors)

    def _most_of(self, command: MeasureSetting) -> dict[str, float] | None:
        return self._most_s.pop(command.id)

    async def _next(self) -> AgentMessage:
        """The next message of the run.

        Raises:
            RunGone: There is none.
            UsageError: The line is no message.
        """
        line = await self._inbox.get()
        if line is None:
            raise RunGone("the run has gone")
        try:
            return decoded(line)
        except ValueError as error:
            raise UsageError(f"the agent does not understand its run: {error}") from error

    async def _carry_out(self) -> bool:
        """Carry out one message at a time. Return whether the node shall finish; else it shall close at once."""
        methods = node_methods(self._node)
        while True:
            message = await self._next()
            match message:
                case FinishNode():
                    return True
                case CloseNode():  # the run has failed
                    return False
                case JobForNode(job, context_bytes):
                    self._jobs[job.spec.name] = job
                    self._context_bytes[job.spec.job_class] = context_bytes
                    if self._shipment is not None:
                        self._shipment.begin(job.spec.name)
                case FilePart() if self._shipment is not None:
                    self._shipment.receive(message)
                case AskPort(command):
                    self._take_port(command)
                case ReleaseDevices():
                    self._tasks.begin(asyncio.to_thread(self._claims.restore))
                case MostTimes(command, most_s):
                    self._most_s[command] = most_s
                case RunBeat():
                    self._run = message
                case KeepOnly(names):
                    self._node.keep_only(names)
                    if self._shipment is not None:
                        self._shipment.keep_only(names)
                    for name in self._jobs.keys() - set(names):  # in place: the node has the same object
                        del self._jobs[name]
                case EndSilentServer():
                    self._node.end_silent_server()
                case _ if (carry_out := methods.get(type(message))) is not None:
                    carry_out(message, 0.0)
                case _:
                    raise UsageError(f"an agent does nothing with {type(message).__name__}")

    def _take_port(self, command: int) -> None:
        try:
            self._send(PortTaken(command, self._node.take_port()))
        except OSError as error:
            self._send(Refused(0.0, command, f"no port for its ranks: {error}"))

    def _attempt_over(self, job: str, attempt: int) -> None:
        self._send_files(job)
        self._send(AttemptOver(job, attempt))

    def _send_files(self, job: str) -> None:
        """Send what is left of the files of a job, since the run reads them at its next message."""
        if self._shipment is not None and job:
            self._shipment.sender.finish(f"jobs/{job}")

    def _tell(self, began_s: float, make: Callable[..., Event | None]) -> None:
        event = make(at_s=self._clock.monotonic_s() - began_s)
        if event is None:
            return
        self._send_files(getattr(event, "job", ""))
        for device, knobs in self._claims.knobs.items():
            if knobs != self._told_knobs[device]:
                self._told_knobs[device] = knobs
                self._send(KnobsLeft(device, knobs))
        if isinstance(event, Profiled):
            for name, made in self._profiler.made.items():
                if self._told_profiles.get(name) is not made:
                    self._told_profiles[name] = made
                    self._send(ProfileMade(made))
        if isinstance(event, JobExited) and event.outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.CRASHED):
            if event.exit_code == _BY_SIGTERM and self._terminated_s == -math.inf:
                self._tasks.begin(self._ended_by_sigterm(event))
            else:
                self._ended(event)
        else:
            self._send(event)

    def _terminated(self) -> None:
        """Take SIGTERM, which Slurm sends to every process of a job, those of ecoshare's jobs included."""
        self._terminated_s = self._clock.monotonic_s()
        self._send(StopRequested(0.0, at_once=False))

    def _ended(self, event: JobExited) -> None:
        """Tell the end of an attempt. One that Slurm has ended did not fail, nor did it complete if it has saved."""
        if self._clock.monotonic_s() - self._terminated_s < _ENDS_OF_IT_WITHIN_S:
            event = replace(event, outcome=Outcome.STOPPED, reason="Slurm has ended it")
        self._send(event)

    async def _ended_by_sigterm(self, event: JobExited) -> None:
        """Tell the end of an attempt by SIGTERM, which may be on its way to this process, too."""
        await asyncio.sleep(_SIGNALS_WITHIN_S)
        self._ended(event)

    async def _tell_ready(self) -> None:
        known = None
        while True:
            if (ready := self._node.ready) is not known and ready is not None:
                self._send(ServerReady(ready))
                known = ready
            await asyncio.sleep(_REPORT_S / 5)

    async def _report(self) -> None:
        while True:
            self._send(self._report_now())
            if self._shipment is not None:
                for job in self._node.in_progress:
                    self._shipment.sender.look(f"jobs/{job}")
            await asyncio.sleep(_REPORT_S)

    def _report_now(self) -> NodeReport:
        node, notes = self._node, self._profiler.notes
        new, self._told_notes = notes[self._told_notes :], len(notes)
        return NodeReport(
            {name: node.attempt(name) for name in node.in_progress},
            {name: node.device(name) for name in node.sessions},
            tuple(new),
        )

    async def _keep_lease(self, lease_s: float) -> None:
        """End the node when nothing was heard for the time of the lease.

        Raises:
            RunGone: Nothing was heard for that time.
        """
        while (left_s := self._heard_s + lease_s - self._clock.monotonic_s()) > 0.0:
            await asyncio.sleep(left_s)
        raise RunGone(f"nothing was heard of the run for {lease_s:g} s")
