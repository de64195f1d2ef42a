"""The machines of a run: their agents are started, and their nodes are opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import ecoshare
from ecoshare.cluster.agent_line import AgentLine
from ecoshare.cluster.agent_messages import (
    PROTOCOL,
    AskLimits,
    LimitsTold,
    NodeFound,
    NodeOpened,
    OpenNode,
    ReleaseDevices,
    RunBeat,
)
from ecoshare.cluster.joined_nodes import JoinedNodes
from ecoshare.cluster.node_link import NodeLink
from ecoshare.cluster.remote_node import LEASE_S, NodeSetup, RemoteClaims
from ecoshare.devices import power_model
from ecoshare.devices.power_model import PowerModel
from ecoshare.errors import UnfitEnvironment
from ecoshare.record.run_documents import recorded_end
from ecoshare.runtime import run_searches
from ecoshare.runtime.class_knowledge import contexts
from ecoshare.runtime.node_opening import OpenedNode, RunFacts, node_plan
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.run_claims import claim_request, settled
from ecoshare.runtime.run_host import ControllerHost, RunHost
from ecoshare.runtime.signals import StopSignals
from ecoshare.values.device import NODE_TIMEOUT_S, DeviceInfo

_FOUND_WITHIN_S = 60.0
_OPENED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A machine of a cluster.

    Attributes:
        line: The way to its agent.
        address: Address of the machine for the other ones.
        token: Token that marks the processes of the run there.
        devices: Devices, with their names in a run: the name of the node, a slash, and the name there.
        power_models: Power model of each device, by its name in a run; None for none.
        is_shared: Whether another run uses one of the devices.
    """

    line: AgentLine
    address: str
    token: str
    devices: tuple[DeviceInfo, ...]
    power_models: Mapping[str, PowerModel | None]
    is_shared: bool


class NodeCluster:
    """Machines with agents; see `HeldMachines`."""

    def __init__(self, nodes: tuple[ClusterNode, ...], timeout_s: float, lease_s: float) -> None:
        self._nodes, self._timeout_s, self._lease_s = nodes, timeout_s, lease_s
        self._limits_w: Mapping[str, tuple[float, ...]] | None = None

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """All devices."""
        return tuple(device for node in self._nodes for device in node.devices)

    @property
    def is_shared(self) -> bool:
        """See `HeldMachines`."""
        return any(node.is_shared for node in self._nodes)

    def power_models(self, devices: Sequence[DeviceInfo]) -> Mapping[str, PowerModel | None]:
        """See `HeldMachines`. The agents have told them."""
        found = {name: model for node in self._nodes for name, model in node.power_models.items()}
        return {device.name: found[device.name] for device in devices}

    def power_limits_w(self) -> Mapping[str, tuple[float, ...]]:
        """See `HeldMachines`. The agents are asked once, before their nodes are opened."""
        if self._limits_w is None:
            for node in self._nodes:
                node.line.send(AskLimits())
            told = [(node.line, node.line.answer(LimitsTold, _FOUND_WITHIN_S)) for node in self._nodes]
            self._limits_w = {_name(line, name): each for line, told in told for name, each in told.limits_w.items()}
        return self._limits_w

    def tell(self, run: Path) -> None:
        """See `HeldMachines`. The agents are told when their nodes are opened."""

    def _beat(self) -> None:
        """Tell the nodes that are open that the run goes on, while others are opened."""
        for node in self._nodes:
            node.line.send(RunBeat(stopping=False, live_jobs=0))

    @contextlib.contextmanager
    def host(self, token: str, log: Path, signals: StopSignals) -> Iterator[RunHost]:
        """See `HeldMachines`."""
        yield ControllerHost(signals)

    @contextlib.contextmanager
    def open_node(self, plan: Plan, run: RunFacts) -> Iterator[OpenedNode]:
        """See `HeldMachines`."""
        request = claim_request(plan)
        if request.searches:
            run_searches.load()  # now: an agent with an open node must hear of the run
        for node in self._nodes:
            opening = OpenNode(
                run=str(run.folder.path.absolute()),
                now_s=run.now_s(),
                plan=node_plan(plan),
                lanes=plan.lanes,
                names=tuple(device.name for device in node.devices),
                profiles=str(run.profiler.store.folder.absolute()),
                limits=run.profiler.limits,
                only_profiles=run.profiler.stops_the_run,
                request=request,
                lease_s=self._lease_s,
            )
            node.line.send(opening)
        opened = {node.line.name: node.line.answer(NodeOpened, _OPENED_WITHIN_S, self._beat) for node in self._nodes}
        reports = [each.report for each in opened.values()]
        knobs = {name: each for report in reports for name, each in report.knobs.items()}
        plan, searches = settled(plan, reports, knobs.__getitem__, run.profiler.notes)
        searches.begin(run.profiler, run.jobs)
        if plan.goal is None and not plan.known_settings and not plan.budget.sets_limits:
            for node in self._nodes if knobs else ():
                node.line.send(ReleaseDevices())
            knobs.clear()
        plan = replace(plan, mps=all(each.is_shared for each in opened.values()))
        claims = RemoteClaims()
        setups = [
            NodeSetup(
                node.line,
                node.address,
                [device.name for device in node.devices],
                run.job,
                contexts(plan.on_processors, run.profiler.made, plan.known),
                searches.most_s,
                knobs,
                claims,
                run.profiler.made,
                run.profiler.notes,
                self._timeout_s,
                self._lease_s,
                lambda job, attempt: recorded_end(run.folder.job(job), attempt),
            )
            for node in self._nodes
        ]
        models = {**run.power_models, **power_model.as_json(self.power_models(plan.devices))}  # some nodes may be new
        facts = {node.line.name: {"token": node.token, "mps": opened[node.line.name].evidence} for node in self._nodes}
        environment = {"nodes": facts, "power_models": models, "mps": next(iter(opened.values())).evidence}
        yield OpenedNode(plan, partial(JoinedNodes, setups, run.folder), environment, claims, searches)


@contextlib.contextmanager
def held(
    starts: Mapping[str, Callable[[], NodeLink]],
    addresses: Mapping[str, str],
    timeout_s: float = NODE_TIMEOUT_S,
    lease_s: float = LEASE_S,
) -> Iterator[NodeCluster]:
    """Context manager: hold the machines of a run. All agents have ended at its end.

    Args:
        starts: Starts the agent of each node, by the name of the node.
        addresses: Address of each node for the other ones, by its name.
        timeout_s: Time (s) without a message of an agent after which its node counts as lost.
        lease_s: Time (s) without a message of the run after which an agent ends all that it has started.

    Raises:
        UnfitEnvironment: A node does not answer, has another version, or has no device for the run.
        UsageError: The user has asked for a device that does not exist there.
    """
    with contextlib.ExitStack() as undo:
        lines = []
        for name, start in starts.items():
            undo.callback((link := start()).close)
            lines.append(AgentLine(name, link))
        yield NodeCluster(tuple(_found(line, addresses[line.name]) for line in lines), timeout_s, lease_s)


def _found(line: AgentLine, address: str) -> ClusterNode:
    found = line.answer(NodeFound, _FOUND_WITHIN_S)
    if (found.protocol, found.ecoshare) != (PROTOCOL, ecoshare.__version__):
        raise UnfitEnvironment(
            f"the node {line.name} has ecoshare {found.ecoshare}, and this machine has {ecoshare.__version__}",
            "install the same version on all nodes",
        )
    names = {device.name: _name(line, device.name) for device in found.devices}
    devices = tuple(
        replace(
            device,
            name=names[device.name],
            node=line.name,
            links=tuple((names[other], nearness) for other, nearness in device.links if other in names),
        )
        for device in found.devices
    )
    models = {names[name]: power for name, power in found.power_models.items()}
    return ClusterNode(line, address, found.token, devices, models, found.is_shared)


def _name(line: AgentLine, device: str) -> str:
    """Name in the run of a device of a node."""
    return f"{line.name}/{device}"
