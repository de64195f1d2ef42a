"""Nodes on other machines in virtual time: real agents and remote nodes, with lines in memory between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ecoshare.base.device import DeviceInfo
from ecoshare.cluster import agent_calls
from ecoshare.cluster.agent_calls import AgentCalls, NodeOpened, OpenNode, Send
from ecoshare.cluster.cluster_node import AgentLine
from ecoshare.cluster.joined_nodes import JoinedNodes, JoiningNode, NodeJoining
from ecoshare.cluster.links import BegunAgent, NodeStart
from ecoshare.cluster.node_agent import Agent, RunGone
from ecoshare.cluster.remote_node import NodeSetup, RemoteClaims
from ecoshare.devices.vendor import ContextSharing
from ecoshare.lane.messages import Ready
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.measuring.profiling_window import DEFAULT_LIMITS
from ecoshare.runtime.measuring.run_claims import ClaimReport, ClaimRequest
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes.node_opening import OpenedNode
from ecoshare.runtime.nodes.run_host import WarmServer
from ecoshare.runtime.nodes.run_node import JoiningDevices, NodeMachine
from ecoshare.runtime.run import Run
from tests.virtual.lanes import VirtualLanes
from tests.virtual.run import Guard, Machines, World, gpu, virtual_device

TIMEOUT_S, LEASE_S = 15.0, 15.0


@dataclass(slots=True)
class Cut:
    """A time in which no line passes between the run and a node, as with a network that is down.

    Attributes:
        node: Number of the node.
        from_s: Begin.
        to_s: End. Lines of that time arrive then.
    """

    node: int
    from_s: float
    to_s: float


class Host:
    """Host of an agent: its first server is there before the run, as that of `LocalHost` is."""

    def __init__(self, world: World) -> None:
        self._world, self.clock = world, world.clock
        self._first: VirtualLanes | None = None

    async def ready(self) -> Ready | None:
        self._first = self._world.new_server()
        return await self._first.ready()

    async def server(self, token: str, log: Path) -> WarmServer:
        first, self._first = self._first, None
        return first or self._world.new_server()


class _VirtualAgent(Agent):
    """Agent on a machine that is not there."""

    def __init__(self, world: ClusterWorld, begun: BegunAgent, send: Send) -> None:
        super().__init__(begun, send, cast(Any, SimpleNamespace(devices=world.found)), {})
        self._world = world

    def _machine(self, opening: OpenNode) -> tuple[NodeMachine, NodeOpened]:
        begun = self._begun
        folder = RunFolder(Path(opening.run)).node(begun.name, begun.log)
        folder.own.mkdir(parents=True, exist_ok=True)
        self._begin(folder, opening, Path(opening.profiles))
        devices = [virtual_device(self._world, replace(gpu(), name=name)) for name in opening.names]
        machine = NodeMachine(begun.shared, devices, ContextSharing("virtual"), cast(Any, Guard()))
        return machine, NodeOpened(False, "virtual", ClaimReport())


class _Link:
    """Lines between a run and an agent in the same loop."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self._world, self._number = world, number
        self._heard: Callable[[bytes], None] = lambda line: None
        self._agent: Agent | None = None
        self._early: list[bytes] = []
        self._due_s: dict[str, float] = {}  # arrival of the last line, by its way

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        self._heard = heard

    def send(self, line: bytes, can_wait: bool = False) -> None:
        if self._agent is None:
            self._early.append(line)
        else:
            self._passes("to", partial(self._agent.hear, line))

    def close(self) -> None:
        pass

    def _passes(self, way: str, act: Callable[[], None]) -> None:
        """Let a line arrive, after those before it and after a cut."""
        due_s = self._world.clock.monotonic_s() + 0.001
        for cut in self._world.cuts:
            if cut.node == self._number and cut.from_s <= due_s < cut.to_s:
                due_s = cut.to_s
        self._due_s[way] = max(self._due_s.get(way, 0.0) + 1e-6, due_s)
        asyncio.get_running_loop().call_at(self._due_s[way], act)

    def begin(self, opening: OpenNode, shared: Path) -> asyncio.Task[None]:
        """Start the agent, with its node open."""

        def send(line: bytes, can_wait: bool) -> None:
            found = agent_calls.read(line)
            if found.name == "why_unfit":
                assert found.values == ("",) or self._world.server_dies_s, found
            elif not found.is_answer:  # the run has opened the node before its loop began
                self._passes("from", partial(self._heard, line))

        host = cast(Any, Host(self._world))
        begun = BegunAgent(f"n{self._number}", f"virtual-{self._number}", shared, shared / "log", host, False)
        self._agent = _VirtualAgent(self._world, begun, send)
        begins = list[bytes]()
        agent_calls.call(lambda line, _: begins.append(line), AgentCalls.why_unfit)
        agent_calls.call(lambda line, _: begins.append(line), AgentCalls.open, opening)
        for line in (*begins, *self._early):
            self._agent.hear(line)

        async def serve(agent: Agent) -> None:
            try:
                await agent.serve()
            except* RunGone:
                pass

        return asyncio.get_running_loop().create_task(serve(self._agent))


@dataclass(slots=True)
class ClusterWorld(World):
    """A world with a device on each of several machines.

    Attributes:
        cuts: Times in which a machine is not to be reached.
        comes_s: Times (s) at which another machine comes. It gets the next number.
        joined: Names of the devices of such machines that the run has begun to use.
        agents: Tasks of the agents.
    """

    cuts: Sequence[Cut] = ()
    comes_s: Sequence[float] = ()
    joined: list[str] = field(default_factory=list)
    agents: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def found(self) -> tuple[DeviceInfo, ...]:
        return tuple(_device(number) for number in range(self.devices))

    @property
    def machines(self) -> Machines:
        return _Cluster(self)


@dataclass(frozen=True, slots=True)
class _Cluster(Machines):
    """Machines of a run over several nodes."""

    @contextlib.contextmanager
    def open_node(self, run: Run) -> Iterator[OpenedNode]:
        plan, searches, claims = run.plan, RunSearches(), RemoteClaims()
        searches.begin(run.profiler, run.jobs)
        opening = _Opening(cast(ClusterWorld, self.world), run, claims)
        opened = [opening.node(number, device) for number, device in enumerate(plan.devices)]

        def begin() -> None:
            for _, start in opened:
                start()

        self.world.at_begin.append(begin)
        setups = [setup for setup, _ in opened]
        coming = cast(NodeJoining, _Coming(opening))
        yield OpenedNode(plan, partial(JoinedNodes, setups, coming, None, lambda name: None), {}, claims, searches)


@dataclass(frozen=True, slots=True)
class _Opening:
    """Opens nodes for a run."""

    world: ClusterWorld
    run: Run
    claims: RemoteClaims

    def node(self, number: int, device: DeviceInfo) -> tuple[NodeSetup, Callable[[], None]]:
        """A node with one device, and the function that starts its agent, for the loop of the run."""
        link, run, world = _Link(self.world, number), self.run, self.world
        setup = NodeSetup(
            AgentLine(f"n{number}", link),
            NodeStart(f"n{number}", "127.0.0.1", lambda: link),
            [device.name],
            {},
            self.claims,
            lambda made: None,
            None,
            TIMEOUT_S,
            LEASE_S,
        )

        def start() -> None:
            opening = OpenNode(
                str(run.folder.path),
                run.now_s(),
                run.for_nodes,
                run.plan.lanes,
                (device.name,),
                str(run.profiler.store.folder),
                DEFAULT_LIMITS,
                False,
                ClaimRequest(False, False, False, False, False),
                LEASE_S,
            )
            shared = world.folder / f"shared-{run.token}-{number}"
            shared.mkdir()
            world.agents.append(link.begin(opening, shared))

        return setup, start


@dataclass(frozen=True, slots=True)
class _Coming:
    """Machines that come while a run goes on; see `NodeJoining`."""

    opening: _Opening

    async def keep(
        self, count: Callable[[], int], waiting: Callable[[], int], join: Callable[[JoiningNode], None]
    ) -> None:
        world = self.opening.world
        for number, at_s in enumerate(sorted(world.comes_s), start=world.devices):
            await asyncio.sleep(at_s - world.clock.monotonic_s())
            device = _device(number)
            self.opening.run.searches.join(device)
            setup, start = self.opening.node(number, device)
            start()
            facts = {"devices": [device.as_dict()]}
            join(JoiningNode(setup, JoiningDevices((device,), facts, partial(world.joined.append, device.name))))


def _device(number: int) -> DeviceInfo:
    return replace(gpu(), name=f"n{number}/cuda:0", node=f"n{number}")
