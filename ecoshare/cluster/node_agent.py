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
import inspect
import math
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from ecoshare.base.attempt import Outcome
from ecoshare.base.clock import SideTasks
from ecoshare.base.device import DeviceInfo
from ecoshare.cluster import agent_calls
from ecoshare.cluster.agent_calls import AgentCalls, FilePart, NodeFound, NodeOpened, OpenNode, RunCalls, Send
from ecoshare.cluster.links import BegunAgent
from ecoshare.cluster.shipment import Shipment
from ecoshare.core.commands import Command, MeasureSetting
from ecoshare.core.driving import node_methods
from ecoshare.core.events import Event, IterationsDone, JobExited, Profiled, Refused, StopRequested
from ecoshare.devices.knob import DeviceKnobs
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.occupancy import Occupancy, why_not_alone
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane.files import make_folder
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.record.run_folder import NodeFolder, RunFolder, unwritable
from ecoshare.record.samples import Line
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.run_claims import NodeClaims, claim_devices
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.node import Node, check_torch
from ecoshare.runtime.nodes.node_opening import guard_of, shared_contexts
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.nodes.run_node import NodeMachine
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.planned_limits import ParkingHost, device_limits_w, parking_host

P = ParamSpec("P")

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
    """Agent of a node, from the first call of a run to the last."""

    def __init__(
        self, begun: BegunAgent, send: Send, occupancy: Occupancy, models: Mapping[str, PowerModel | None]
    ) -> None:
        """An agent without a node yet.

        Args:
            begun: Parts of the agent that exist already.
            send: Sends a line to the run.
            occupancy: Use of the devices.
            models: Power model of each device, by its name on this machine; None for none.
        """
        self._begun, self._send, self._occupancy, self._models = begun, send, occupancy, models
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._jobs: dict[str, NodeJob] = {}
        self._context_bytes: dict[str, int] = {}
        self._most_s: dict[int, Mapping[str, float] | None] = {}
        self._claims, self._told_knobs = NodeClaims(), dict[str, DeviceKnobs]()
        self.token = begun.token
        self.host: RunHost = begun.host
        self.stopping, self.live_jobs = False, 0
        self._clock = begun.host.clock
        self._heard_s = self._clock.monotonic_s()
        self._terminated_s = -math.inf
        self._told_notes, self._told_profiles = 0, dict[str, Profile]()
        self._shipment: Shipment | None = None
        self._tasks = SideTasks()
        self._undo = contextlib.ExitStack()
        self._opening: OpenNode | None = None
        self._is_finishing = self._is_closing = False

    def hear(self, line: bytes | None) -> None:
        """Take a line of the run; None at its end. Called in the loop."""
        self._heard_s = self._clock.monotonic_s()
        self._inbox.put_nowait(line)

    async def serve(self) -> None:
        """Carry out what a run asks for, to its end.

        Raises:
            EcoshareError: The node cannot go on.
            OSError: The disk is full.
        """
        with self._undo:
            while self._opening is None:
                await self._carry_out_next()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminated)
            notes: tuple[str, ...] = ()
            try:
                await self._drive(self._opening.lease_s)
                if self._shipment is not None:
                    self._own_folder.keep_log()
                    notes = self._shipment.end()
            finally:
                self._call(RunCalls.closed, tuple(self._claims.unrestored), (*self._claims.notes, *notes))

    async def _drive(self, lease_s: float) -> None:
        beat = asyncio.create_task(self._guard.beat())
        self._heard_s = self._clock.monotonic_s()  # to open the node may have taken as long as a lease
        try:
            await self._node.open()
            async with self._tasks:
                for work in (*self._node.works(), self._report(), self._tell_ready(), self._keep_lease(lease_s)):
                    self._tasks.begin(work)
                await self._node.first_samples()
                self._call(RunCalls.sampled)
                while not (self._is_finishing or self._is_closing):
                    await self._carry_out_next()
            if self._is_finishing:
                await self._node.finish()
                self._report_now()
                self._call(RunCalls.finished)
                while not self._is_closing:
                    await self._carry_out_next()
        finally:
            await self._node.close()
            beat.cancel()

    async def _carry_out_next(self) -> None:
        """Carry out the next call of the run.

        Raises:
            RunGone: There is none.
            UsageError: The line is no call, or no call of now.
        """
        line = await self._inbox.get()
        if line is None:
            raise RunGone("the run has gone")
        try:
            found = agent_calls.read(line)
        except ValueError as error:
            raise UsageError(f"the agent does not understand its run: {error}") from error
        method = getattr(AgentCalls, found.name, None)
        if self._is_finishing and method is not AgentCalls.close:
            return  # beats still come, and the end of a server that is silent
        has_answer = inspect.iscoroutinefunction(method)
        if method is None or found.is_answer or has_answer != (self._opening is None):
            raise UsageError(f"an agent does nothing with {found.name} now")
        calls: AgentCalls = self
        done = getattr(calls, found.name)(*found.values)
        if has_answer:
            agent_calls.answer(self._send, method, await done)

    def _call(self, method: Callable[Concatenate[RunCalls, P], object], *values: P.args, **names: P.kwargs) -> None:
        agent_calls.call(self._send, method, *values, **names)

    # Calls of the run; see `AgentCalls`

    async def open(self, opening: OpenNode) -> NodeOpened:
        machine, opened = self._machine(opening)
        self._node = Node(machine, self)
        self._methods = node_methods(self._node)
        self._guard = machine.guard
        self._opening = opening
        return opened

    def _machine(self, opening: OpenNode) -> tuple[NodeMachine, NodeOpened]:
        begun, occupancy, undo = self._begun, self._occupancy, self._undo
        run, profiles = Path(opening.run), Path(opening.profiles)
        if opening.ships:
            assert begun.unpacked is not None, "the command line says where the files are"
            self._shipment = Shipment(
                opening.run, begun.name, begun.unpacked, lambda part: self._call(RunCalls.file_for_run, part)
            )
            run, profiles = self._shipment.run, self._shipment.run / "own-profiles"
        elif not RunFolder(run).plan.is_file():
            raise UnfitEnvironment(
                f"{opening.run} is not there: the node and the run share no folder",
                "give --runs a folder on a file system that all nodes share, or ship the scripts with --ship",
            )
        folder = RunFolder(run).node(begun.name, begun.log)
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
            ClaimedDevice(own, self._models[each.name], self._claims.settings.get(own.name))
            for own, each in zip(named, occupancy.devices, strict=True)
        ]
        guard = guard_of(begun.token, self._claims, opening.lease_s)
        last.callback(guard.dismiss)
        contexts = shared_contexts(occupancy.devices, opening.lanes, opening.plan.places, begun.shared, begun.token)
        sharing = undo.enter_context(contexts)
        undo.callback(folder.keep_log)
        self._begin(folder, opening, profiles)
        machine = NodeMachine(begun.shared, devices, sharing, guard)
        files = str(self._shipment.files) if self._shipment is not None else ""
        return machine, NodeOpened(sharing.is_shared, sharing.evidence, report, files)

    async def found(self) -> NodeFound:
        raise AssertionError("it is told unasked")

    async def why_unfit(self) -> str:
        if (ready := await self._begun.host.ready()) is None:
            return "torch cannot be loaded: see `ecoshare doctor` there"
        try:
            check_torch(self._occupancy.devices, ready)
        except UnfitEnvironment as error:
            return f"{error}: {error.hint}"
        return ""

    async def limits_w(self) -> dict[str, tuple[float, ...]]:
        if reason := self._why_not_alone(self._occupancy.devices):
            raise UnfitEnvironment(f"power limits cannot be set: {reason}")
        return {each.name: device_limits_w(each) for each in self._occupancy.devices}

    async def parking(self) -> ParkingHost:
        return parking_host(self._occupancy.devices)

    def take_job(self, job: NodeJob, context_bytes: int) -> None:
        self._jobs[job.spec.name] = job
        self._context_bytes[job.spec.job_class] = context_bytes
        if self._shipment is not None:
            self._shipment.begin(job.spec.name)

    def file_for_node(self, part: FilePart) -> None:
        if self._shipment is None:
            raise UsageError("an agent takes no files if it shares those of the run")
        self._shipment.receive(part)

    def take_port(self, command: int) -> None:
        try:
            self._call(RunCalls.port_taken, command, self._node.take_port())
        except OSError as error:
            self._call(RunCalls.told, Refused(0.0, command, f"no port for its ranks: {error}"))

    def release_devices(self) -> None:
        self._tasks.begin(asyncio.to_thread(self._claims.restore))

    def most_times(self, command: int, most_s: Mapping[str, float] | None) -> None:
        self._most_s[command] = most_s

    def beat(self, stopping: bool, live_jobs: int) -> None:
        self.stopping, self.live_jobs = stopping, live_jobs

    def keep_only(self, names: tuple[str, ...]) -> None:
        self._node.keep_only(names)
        if self._shipment is not None:
            self._shipment.keep_only(names)
        for name in self._jobs.keys() - set(names):
            del self._jobs[name]

    def end_silent_server(self) -> None:
        self._node.end_silent_server()

    def carry_out(self, command: Command) -> None:
        if (method := self._methods.get(type(command))) is None:
            raise UsageError(f"an agent does nothing with {type(command).__name__}")
        method(command, 0.0)

    def finish(self) -> None:
        self._is_finishing = True

    def close(self) -> None:
        self._is_closing = True

    # The run for its node; see `NodeRun`

    def _begin(self, folder: NodeFolder, opening: OpenNode, profiles: Path) -> None:
        self.folder: RunFolder = folder
        self._own_folder, self.for_nodes = folder, opening.plan
        self.began_s = self._clock.monotonic_s() - opening.now_s
        self.profiler = Profiler(folder, ProfileStore(profiles), opening.limits, opening.only_profiles)

    def now_s(self) -> float:
        return self._clock.monotonic_s() - self.began_s

    def warn(self, subject: str, words: str) -> None:
        """See `NodeRun`: a node elsewhere has no displays."""

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.begin(work)

    def job(self, name: str) -> NodeJob:
        return self._jobs[name]

    def context_bytes(self, job_class: str) -> int:
        return self._context_bytes.get(job_class, 0)

    def most_s(self, command: MeasureSetting) -> Mapping[str, float] | None:
        return self._most_s.pop(command.id)

    def hear_sample(self, line: Line) -> None:
        self._call(RunCalls.samples, (line,))

    def hear_requests(self, service: str, attempt: int, found: Sequence[RequestInterval]) -> None:
        self._call(RunCalls.requests, service, attempt, tuple(found))

    def _why_not_alone(self, devices: Sequence[DeviceInfo]) -> str:
        return why_not_alone(devices, self._begun.shares_processors)

    # What happens on the node

    def attempt_over(self, job: str, attempt: int) -> None:
        self._send_files(job)
        self._call(RunCalls.attempt_over, job, attempt)

    def _send_files(self, job: str) -> None:
        """Send what is left of the files of a job, since the run reads them at its next call."""
        if self._shipment is not None and job:
            self._shipment.sender.finish(f"jobs/{job}")

    def tell(self, make: Callable[..., Event | None]) -> None:
        event = make(at_s=self.now_s())
        if event is None:
            return
        self._send_files(getattr(event, "job", ""))
        for device, knobs in self._claims.knobs.items():
            if knobs != self._told_knobs[device]:
                self._told_knobs[device] = knobs
                self._call(RunCalls.knobs_left, device, knobs)
        if isinstance(event, Profiled):
            for name, made in self.profiler.made.items():
                if self._told_profiles.get(name) is not made:
                    self._told_profiles[name] = made
                    self._call(RunCalls.profile_made, made)
        if isinstance(event, JobExited) and event.outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.CRASHED):
            if event.exit_code == _BY_SIGTERM and self._terminated_s == -math.inf:
                self._tasks.begin(self._ended_by_sigterm(event))
            else:
                self._ended(event)
        elif isinstance(event, IterationsDone):
            self._call(RunCalls.progress, event.job, event.usage)
        else:
            self._call(RunCalls.told, event)

    def _terminated(self) -> None:
        """Take SIGTERM, which Slurm sends to every process of a job, those of ecoshare's jobs included."""
        self._terminated_s = self._clock.monotonic_s()
        self._call(RunCalls.told, StopRequested(0.0, at_once=False))

    def _ended(self, event: JobExited) -> None:
        """Tell the end of an attempt. One that Slurm has ended did not fail, nor did it complete if it has saved."""
        if self._clock.monotonic_s() - self._terminated_s < _ENDS_OF_IT_WITHIN_S:
            event = replace(event, outcome=Outcome.STOPPED, reason="Slurm has ended it")
        self._call(RunCalls.told, event)

    async def _ended_by_sigterm(self, event: JobExited) -> None:
        """Tell the end of an attempt by SIGTERM, which may be on its way to this process, too."""
        await asyncio.sleep(_SIGNALS_WITHIN_S)
        self._ended(event)

    async def _tell_ready(self) -> None:
        known = None
        while True:
            if (ready := self._node.ready) is not known and ready is not None:
                self._call(RunCalls.server_ready, ready)
                known = ready
            await asyncio.sleep(_REPORT_S / 5)

    async def _report(self) -> None:
        while True:
            self._report_now()
            if self._shipment is not None:
                for job in self._node.in_progress:
                    self._shipment.sender.look(f"jobs/{job}")
            await asyncio.sleep(_REPORT_S)

    def _report_now(self) -> None:
        node, notes = self._node, self.profiler.notes
        new, self._told_notes = notes[self._told_notes :], len(notes)
        self._call(
            RunCalls.report,
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
