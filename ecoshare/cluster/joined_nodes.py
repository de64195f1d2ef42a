"""Several nodes as one: each command goes to the node of its device, its lane or its job."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.base.attempt import Usage
from ecoshare.base.clock import loop_s
from ecoshare.cluster.agent_calls import AgentCalls, NodeOpened, OpenNode
from ecoshare.cluster.cluster_node import AgentLine, ClusterNode, found_node
from ecoshare.cluster.links import LookForNodes, NodeLink, NodeStart
from ecoshare.cluster.remote_gang import RemoteGang
from ecoshare.cluster.remote_node import NodeSetup, RemoteClaims, RemoteNode
from ecoshare.cluster.shipment import NodeFiles
from ecoshare.core.commands import (
    ApplySetting,
    AwaitRequests,
    KillJob,
    LimitMemory,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ParkJob,
    ProfileJob,
    ResumeJob,
    SetCaching,
    SetShares,
    ShareMemory,
    StartJob,
)
from ecoshare.devices import meter
from ecoshare.devices.knob import DeviceKnobs, KnobSpec
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.jobs.quantities import format_duration
from ecoshare.knowledge.profile import Profile
from ecoshare.lane.messages import Ready
from ecoshare.record.samples import SampleFile
from ecoshare.runtime.measuring.run_claims import ClaimRequest
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, JoiningDevices, LeavingDevices
from ecoshare.runtime.planning.planned_limits import ParkingHost, check_host_memory, left_for_jobs
from ecoshare.runtime.run import Run

_OPENED_WITHIN_S = 60.0


@dataclass(slots=True)
class NodeSetups:
    """Opens nodes for a run.

    Attributes:
        run: The run.
        request: Request to set the devices.
        timeout_s: Time (s) without a message of an agent after which its node counts as lost.
        lease_s: Time (s) without a message of the run after which an agent ends all that it has started.
        ship: Folder that was shipped to the nodes, without links; None if they share the file system of the run.
        knobs: Knobs of each claimed device that can still be set, by its name in the run.
        claims: What becomes of the claimed devices.
    """

    run: Run
    request: ClaimRequest
    timeout_s: float
    lease_s: float
    ship: Path | None
    knobs: MutableMapping[str, DeviceKnobs] = field(default_factory=dict)
    claims: RemoteClaims = field(default_factory=RemoteClaims)

    def ask(self, node: ClusterNode) -> None:
        """Ask an agent to open its node."""
        run = self.run
        opening = OpenNode(
            run=str(run.folder.path.absolute()),
            now_s=run.now_s(),
            plan=run.for_nodes,
            lanes=run.plan.lanes,
            names=tuple(device.name for device in node.devices),
            profiles=str(run.profiler.store.folder.absolute()),
            limits=run.profiler.limits,
            only_profiles=run.profiler.stops_the_run,
            request=self.request,
            lease_s=self.lease_s,
            ships=self.ship is not None,
        )
        node.line.call(AgentCalls.open, opening)

    def opened(self, line: AgentLine, meanwhile: Callable[[], None]) -> NodeOpened:
        """Answer of an agent that was asked.

        Args:
            line: The way to the agent.
            meanwhile: Called each second until the answer is there.

        Raises:
            UnfitEnvironment: The node cannot be opened.
        """
        return line.answer(AgentCalls.open, _OPENED_WITHIN_S, meanwhile)

    def of(self, node: ClusterNode, opened: NodeOpened) -> NodeSetup:
        """Facts about a node that has been opened."""
        run = self.run
        files = None
        if self.ship is not None:
            files = NodeFiles(node.line.name, run.folder, self.ship, opened.files, run.profiler.notes)
        return NodeSetup(
            node.line,
            node.start,
            [device.name for device in node.devices],
            self.knobs,
            self.claims,
            self._keep_profile,
            files,
            self.timeout_s,
            self.lease_s,
        )

    def _keep_profile(self, made: Profile) -> None:
        """Keep a profile of a node, which has stored it itself if it shares the file system."""
        profiler = self.run.profiler
        if self.ship is None:
            profiler.made[made.job_class] = made
        else:
            jobs = (name for name, job in self.run.jobs.items() if job.spec.job_class == made.job_class)
            profiler.take(made, next(jobs))


_LOOK_S = 1.0
"""Time (s) between two looks."""


class IdleNodes:
    """Gives machines back.

    ::

        no job for some time ──► the run goes on without its devices ──► agent ends, settings are put back
                                 (a segment of the log)

    A machine stays while a job waits, or is still to come, and the last one stays in any case.

    Attributes:
        leaving: Nodes that the run does without.
    """

    def __init__(
        self,
        idle_s: float,
        run: Run,
        nodes: list[RemoteNode],
        left: Callable[[str], None],
    ) -> None:
        """Nothing is given back yet.

        Args:
            idle_s: Time (s) without a job after which a machine is given back.
            run: The run.
            nodes: Nodes of the run; those that leave are taken out.
            left: Gets the name of each node that has left.
        """
        self._idle_s, self._run, self._nodes, self._told = idle_s, run, nodes, left
        self._note = run.profiler.notes.append
        self._busy_s = dict[str, float]()  # time at which a node last had a job, by its name
        self.leaving = list[RemoteNode]()

    async def keep(self) -> None:
        """Look for machines without a job until cancelled."""
        while True:
            for node in reversed(self._nodes):  # jobs that come begin on the first ones
                now_s = self._run.now_s()
                if node.live or node.is_measuring:
                    self._busy_s[node.name] = now_s
                is_idle = now_s - self._busy_s.setdefault(node.name, now_s) >= self._idle_s
                if is_idle and not node.lost and node.give_back is not None:
                    self._run.leave(LeavingDevices(frozenset(node.devices), partial(self._left, node)))
            await asyncio.sleep(_LOOK_S)

    def _left(self, node: RemoteNode) -> None:
        self._nodes.remove(node)
        self.leaving.append(node)
        self._told(node.name)
        self._run.begin(self._give_back(node, self._run.now_s()))

    async def _give_back(self, node: RemoteNode, at_s: float) -> None:
        await node.finish()
        await node.close()
        assert node.give_back is not None, "the run must not keep it"
        try:
            await asyncio.to_thread(node.give_back)
        except EcoshareError as error:
            self._note(f"the node {node.name} is not used any more, and could not be given back: {error}")
            return
        idle, at = format_duration(self._idle_s), format_duration(at_s)
        self._note(f"the node {node.name} was given back at {at}, after {idle} without a job")


LOOK_S = 5.0
"""Time (s) between two looks for machines."""

_AGAIN_S, _AT_LAST_AGAIN_S = 60.0, 3600.0
"""Time (s) after which a machine that could not join is tried again: twice as long each time, up to the second one."""

_PARKING_WITHIN_S = 60.0
"""Longest time (s) in which an agent tells about its machine."""


class _RunOver(Exception):
    """The run has ended while a machine was about to join it."""


@dataclass(frozen=True, slots=True)
class JoiningNode:
    """A node that has been opened, and may join the run."""

    setup: NodeSetup
    devices: JoiningDevices


class NodeJoining:
    """Opens the nodes of machines that come while a run goes on.

    ::

        look, every few seconds ──► agent ──► found ──► open, answered ──► the run, in a segment

    A machine joins only if it can do what the others do: devices of the same model, settings as found, the same way to
    share contexts. Another one is named in a note, and tried again later.
    """

    def __init__(
        self,
        look: LookForNodes,
        most: int | None,
        names: Iterable[str],
        setups: NodeSetups,
        began: Callable[[ClusterNode], None],
        links: list[NodeLink],
        only_for_work: bool,
    ) -> None:
        """Nothing is looked for yet.

        Args:
            look: Finds machines.
            most: Most nodes at a time that are not lost; None for any number.
            names: Names of machines that do not come later.
            setups: Opens nodes for the run.
            began: Called with a node when the run has begun to use it.
            links: Gets the link to each agent that is started; the caller closes them all.
            only_for_work: Whether a machine joins only if a job waits.
        """
        self._look, self._most, self._setups, self._began, self._links = look, most, setups, began, links
        self._next_s = dict.fromkeys(names, math.inf)  # time of the next try, by the name of the node
        self._tries: Counter[str] = Counter()
        self._only_for_work, self._asked, self._asking = only_for_work, 0, threading.Lock()
        self._is_over = False

    async def keep(
        self, count: Callable[[], int], waiting: Callable[[], int], join: Callable[[JoiningNode], None]
    ) -> None:
        """Look for machines and open their nodes until cancelled.

        Args:
            count: Returns the number of nodes of the run that are not lost.
            waiting: Returns the number of jobs that wait.
            join: Called with each node that may join, in the loop.
        """
        did_wait = False
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                if self._only_for_work:
                    waits = waiting() > 0
                    needs_more, did_wait = waits and did_wait, waits  # jobs wait at two looks
                    await asyncio.to_thread(self._ask, count() + 1 if needs_more else 0)
                    if not needs_more:
                        continue
                for start in await asyncio.to_thread(self._present):
                    is_full = self._most is not None and count() >= self._most
                    if is_full or loop_s() < self._next_s.get(start.name, 0.0):
                        continue
                    found = await asyncio.to_thread(self._opened, start)
                    if found is not None:
                        self._next_s[start.name] = math.inf
                        join(found)
                        continue
                    self._tries[start.name] += 1
                    again_s = min(_AGAIN_S * 2 ** (self._tries[start.name] - 1), _AT_LAST_AGAIN_S)
                    self._next_s[start.name] = loop_s() + again_s
        finally:
            self._is_over = True
            self._ask(0)

    def _present(self) -> Sequence[NodeStart]:
        """Machines that are there; none if the engine does not tell them now. This runs in a thread."""
        try:
            return self._look.present()
        except Exception as error:  # the run goes on without it
            self._note(f"machines that come are not seen: {error}")
            return ()

    def _ask(self, nodes: int) -> None:
        """Ask the engine for machines, if the run needs another number than before. This runs in a thread."""
        if self._most is not None and nodes > self._most:
            return
        with self._asking:
            if nodes == self._asked or (nodes and self._is_over):
                return
            self._asked = nodes
            try:
                self._look.ask(nodes)
            except Exception as error:  # the run goes on without it
                self._note(f"the engine is not asked for machines: {error}")

    def _opened(self, start: NodeStart) -> JoiningNode | None:
        """Open a node; None if it cannot join. This runs in a thread."""
        try:
            self._links.append(link := start.start())
            try:
                return self._open(AgentLine(start.name, link), start)
            except BaseException:
                link.close()
                self._links.remove(link)
                raise
        except _RunOver:
            pass
        except Exception as error:  # the run goes on without it
            self._note(f"the node {start.name} has come and cannot join: {error}")
        return None

    def _note(self, note: str) -> None:
        if note not in (notes := self._setups.run.profiler.notes):
            notes.append(note)

    def _open(self, line: AgentLine, start: NodeStart) -> JoiningNode:
        setups, plan = self._setups, self._setups.run.plan
        node = found_node(line, start, self._check)
        had = plan.devices[0].model
        if (other := next((each for each in node.devices if each.model != had), None)) is not None:
            raise UnfitEnvironment(f"{other.name} is {other.model}, and the run has {had}")
        node.ask_torch()
        if reason := node.why_unfit(self._check):
            raise UnfitEnvironment(reason)
        hosts = self._parking(line, node)
        node = replace(node, host=hosts.get(line.name))
        setups.ask(node)
        opened = setups.opened(line, self._check)
        self._check_claims(opened)
        if setups.knobs:
            setups.knobs.update(opened.report.knobs)
        elif opened.report.knobs:
            line.call(AgentCalls.release_devices)
        memory_bytes = max(each.memory_bytes for each in plan.devices)
        left = left_for_jobs(plan.host_bytes, node.devices, None, hosts)
        devices = tuple(replace(each, memory_bytes=min(memory_bytes, each.memory_bytes)) for each in left)
        for device in devices:
            setups.run.searches.join(device)
        facts = {
            "devices": [each.as_dict() for each in devices],
            "power_models": meter.models_as_json(node.power_models),
            "nodes": {line.name: node.facts(opened)},
        }
        return JoiningNode(setups.of(node, opened), JoiningDevices(devices, facts, lambda: self._began(node)))

    def _parking(self, line: AgentLine, node: ClusterNode) -> dict[str, ParkingHost]:
        """The machine, as it parks jobs, if the run parks any.

        Raises:
            UnfitEnvironment: Jobs cannot be parked there.
        """
        plan = self._setups.run.plan
        if not plan.host_bytes:
            return {}
        line.call(AgentCalls.parking)
        hosts = {line.name: line.answer(AgentCalls.parking, _PARKING_WITHIN_S, self._check)}
        check_host_memory(plan.host_bytes, plan.policy, node.devices, plan.lanes, hosts)
        return hosts

    def _check_claims(self, opened: NodeOpened) -> None:
        """Check that the devices share contexts, and may be set, as those of the run.

        Raises:
            UnfitEnvironment: They may not.
        """
        setups, report = self._setups, opened.report
        if opened.is_shared != setups.run.plan.mps:
            shares = "share contexts by MPS" if setups.run.plan.mps else "have contexts of their own"
            raise UnfitEnvironment(f"jobs of the run {shares}, and there they would not")
        if setups.run.plan.profiles is not None and not report.is_as_found:
            raise UnfitEnvironment("its devices have settings of another run")
        if setups.knobs and not (report.knobs and report.is_measured):
            raise UnfitEnvironment(report.refusal or "its devices cannot be set as those of the run are")

    def _check(self) -> None:
        if self._is_over:
            raise _RunOver


class JoinedNodes:
    """All nodes of a run; see `RunNode`."""

    def __init__(
        self,
        setups: Sequence[NodeSetup],
        joining: NodeJoining | None,
        idle_s: float | None,
        left: Callable[[str], None],
        run: Run,
    ) -> None:
        """Nodes that have been opened.

        Args:
            setups: Facts about each node.
            joining: Opens nodes of machines that come later; None if none can.
            idle_s: Time (s) without a job after which a machine is given back; None to keep all.
            left: Gets the name of each node that was given back.
            run: The run.
        """
        self._samples = SampleFile(run.folder.samples, run.hear_sample)
        self._run, self._joining = run, joining
        self._owners: dict[str, RemoteNode | RemoteGang] = {}  # of each job in progress
        self._nodes: list[RemoteNode] = []
        self._idle = None if idle_s is None else IdleNodes(idle_s, run, self._nodes, left)
        self._of_device: dict[str, RemoteNode] = {}
        self._of_lane: dict[int, RemoteNode] = {}
        self.knobs: dict[str, Sequence[KnobSpec]] = {}
        for setup in setups:
            self._add(setup)

    def _add(self, setup: NodeSetup) -> RemoteNode:
        self._nodes.append(node := RemoteNode(setup, self._run, self._samples.write, self._owners))
        self._of_device.update(dict.fromkeys(setup.devices, node))
        self.knobs.update({each: setup.knobs[each].specs for each in setup.devices if each in setup.knobs})
        return node

    def _count(self) -> int:
        return sum(not node.lost for node in self._nodes)

    def _join(self, found: JoiningNode) -> None:
        self._run.begin(self._add(found.setup).keep())
        self._run.join(found.devices)

    # Life

    @property
    def ready(self) -> Ready | None:
        """See `RunNode`: that of the first node which has one."""
        return next((node.ready for node in self._nodes if node.ready is not None), None)

    @property
    def is_measuring(self) -> bool:
        return any(node.is_measuring for node in self._nodes)

    waited = False
    """See `RunNode`. Runs that only measure need one machine."""

    async def open(self) -> None:
        """See `RunNode`. The agents have opened their nodes already."""

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield from [node.keep() for node in self._nodes]
        if self._joining is not None:
            yield self._joining.keep(self._count, lambda: self._run.waiting_jobs, self._join)
        if self._idle is not None:
            yield self._idle.keep()

    async def first_samples(self) -> None:
        await asyncio.gather(*(node.first_samples() for node in self._nodes))

    def keep_only(self, names: Collection[str]) -> None:
        for node in self._nodes:
            node.keep_only(names)

    def end_silent_server(self) -> None:
        for node in self._nodes:
            node.end_silent_server()

    async def finish(self) -> None:
        await asyncio.gather(*(node.finish() for node in self._nodes))

    async def close(self) -> None:
        leaving = self._idle.leaving if self._idle is not None else ()
        await asyncio.gather(*(node.close() for node in (*self._nodes, *leaving)))
        self._samples.close()

    # Readings

    @property
    def in_progress(self) -> Collection[str]:
        return self._owners.keys()

    def attempt(self, name: str) -> AttemptReading:
        return self._owners[name].attempt(name) or AttemptReading(Usage(), (), ())

    def device(self, name: str) -> DeviceReading:
        return self._of_device[name].device(name)

    # Commands

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        self._of_lane[command.lane] = self._of_device[command.device]
        self._on_device(command, now_s)

    def start_job(self, command: StartJob, now_s: float) -> None:
        parts: dict[RemoteNode, list[int]] = {}
        for lane in sorted(command.lanes):
            parts.setdefault(self._of_lane[lane], []).append(lane)
        if len(parts) == 1:
            next(iter(parts)).carry_out(command)
            return
        lanes = [(node, tuple(own)) for node, own in parts.items()]
        gang = RemoteGang(command, lanes, self._run, partial(self._owners.__delitem__, command.job))
        self._owners[command.job] = gang
        gang.begin()

    def _on_device(
        self,
        command: OpenLane | SetCaching | ShareMemory | ApplySetting | MeasureSetting | AwaitRequests,
        now_s: float,
    ) -> None:
        self._of_device[command.device].carry_out(command)

    set_caching = share_memory = apply_setting = measure_setting = await_requests = _on_device

    def set_shares(self, command: SetShares, now_s: float) -> None:
        self._of_lane[command.lane].carry_out(command)

    def _of_attempt(self, command: LimitMemory | ParkJob | ResumeJob | MoveJob | KillJob, now_s: float) -> None:
        if (node := self._owners.get(command.job)) is not None:  # else its end is on the way to the core
            node.carry_out(command)

    limit_memory = park_job = resume_job = move_job = kill_job = _of_attempt

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        """See `NodeCommands`. If the attempt has ended meanwhile, any node tells so."""
        well = next((node for node in self._nodes if not node.lost), self._nodes[0])
        self._owners.get(command.job, well).carry_out(command)
