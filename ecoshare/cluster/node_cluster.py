"""The machines of a run: their agents are started, and their nodes are opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ecoshare.base.device import NODE_TIMEOUT_S, DeviceInfo
from ecoshare.cluster.agent_calls import AgentCalls
from ecoshare.cluster.cluster_node import AgentLine, ClusterNode, device_name, found_node
from ecoshare.cluster.joined_nodes import JoinedNodes, NodeJoining, NodeSetups
from ecoshare.cluster.links import LookForNodes, NodeLink, NodeStart
from ecoshare.cluster.remote_node import LEASE_S
from ecoshare.cluster.shipped_jobs import check_shipped_again
from ecoshare.devices import meter
from ecoshare.devices.meter import PowerModel
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.measuring import setting_searches
from ecoshare.runtime.measuring.run_claims import claim_request, settled
from ecoshare.runtime.nodes.node_opening import OpenedNode
from ecoshare.runtime.nodes.run_host import ControllerHost, RunHost
from ecoshare.runtime.planning.planned_limits import ParkingHost
from ecoshare.runtime.run import Run
from ecoshare.runtime.signals import StopSignals

_ANSWERS_WITHIN_S = 60.0


class NodeCluster:
    """Machines with agents; see `HeldMachines`."""

    def __init__(
        self,
        nodes: Sequence[ClusterNode],
        names: Sequence[str],
        timeout_s: float,
        lease_s: float,
        look: LookForNodes | None,
        most: int | None,
        links: list[NodeLink],
        ship: Path | None,
        idle_s: float | None,
    ) -> None:
        """Machines whose agents have told what they have found; see `held` for the rest.

        Args:
            names: Names of the machines that do not come later: these, and those that are left out.
        """
        self._nodes, self._names, self._timeout_s, self._lease_s = list(nodes), names, timeout_s, lease_s
        self._look, self._most, self._links, self._ship, self._idle_s = look, most, links, ship, idle_s
        self._limits_w: Mapping[str, tuple[float, ...]] | None = None

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """All devices, those that have joined included, without those of machines that were given back."""
        return tuple(device for node in self._nodes for device in node.devices)

    @property
    def is_shared(self) -> bool:
        return any(node.is_shared for node in self._nodes)

    def power_models(self, devices: Sequence[DeviceInfo]) -> Mapping[str, PowerModel | None]:
        """See `HeldMachines`. The agents have told them."""
        found = {name: model for node in self._nodes for name, model in node.power_models.items()}
        return {device.name: found[device.name] for device in devices}

    def power_limits_w(self) -> Mapping[str, tuple[float, ...]]:
        """See `HeldMachines`. The agents are asked once, before their nodes are opened."""
        if self._limits_w is None:
            for node in self._nodes:
                node.line.call(AgentCalls.limits_w)
            told = [(node.line, node.line.answer(AgentCalls.limits_w, _ANSWERS_WITHIN_S)) for node in self._nodes]
            self._limits_w = {
                device_name(line, name): each for line, limits_w in told for name, each in limits_w.items()
            }
        return self._limits_w

    def parking_hosts(self) -> Mapping[str, ParkingHost]:
        """See `HeldMachines`. The agents are asked once, before their nodes are opened."""
        if any(node.host is None for node in self._nodes):
            for node in self._nodes:
                node.line.call(AgentCalls.parking)
            told = [node.line.answer(AgentCalls.parking, _ANSWERS_WITHIN_S) for node in self._nodes]
            self._nodes[:] = [replace(node, host=host) for node, host in zip(self._nodes, told, strict=True)]
        return {node.line.name: node.host for node in self._nodes if node.host is not None}

    def tell(self, run: Path) -> None:
        """See `HeldMachines`. The agents are told when their nodes are opened."""

    def _left(self, name: str) -> None:
        self._nodes[:] = [node for node in self._nodes if node.line.name != name]  # in place: others add to it

    def _beat(self) -> None:
        """Tell the nodes that are open that the run goes on, while others are opened."""
        for node in self._nodes:
            node.line.call(AgentCalls.beat, False, 0)

    @contextlib.contextmanager
    def host(self, token: str, log: Path, signals: StopSignals) -> Iterator[RunHost]:
        yield ControllerHost(signals)

    @contextlib.contextmanager
    def open_node(self, run: Run) -> Iterator[OpenedNode]:
        plan = run.plan
        if self._ship is not None:
            check_shipped_again(plan.everything, self._ship)
        setups = NodeSetups(run, claim_request(plan), self._timeout_s, self._lease_s, self._ship)
        if setups.request.searches:
            setting_searches.load()  # now: an agent with an open node must hear of the run
        for node in self._nodes:
            setups.ask(node)
        opened = {node.line.name: setups.opened(node.line, self._beat) for node in self._nodes}
        reports, knobs = [each.report for each in opened.values()], setups.knobs
        knobs.update({name: each for report in reports for name, each in report.knobs.items()})
        plan, searches = settled(plan, reports, knobs.__getitem__, run.profiler.notes)
        searches.begin(run.profiler, run.jobs)
        if plan.goal is None and not plan.known_settings and not plan.budget.sets_limits:
            for node in self._nodes if knobs else ():
                node.line.call(AgentCalls.release_devices)
            knobs.clear()
        plan = replace(plan, mps=all(each.is_shared for each in opened.values()))
        now = meter.models_as_json(self.power_models(plan.devices))  # some nodes may be new
        models = {**run.environment["power_models"], **now}
        facts = {node.line.name: node.facts(opened[node.line.name]) for node in self._nodes}
        environment = {"nodes": facts, "power_models": models, "mps": next(iter(opened.values())).evidence}
        idle_s = self._idle_s
        if idle_s is not None and plan.budget:
            run.profiler.notes.append(
                "no machine is given back: the shares of the power budget are those of all devices"
            )
            idle_s = None
        joining = None
        if self._look is not None and not plan.budget and not run.profiler.stops_the_run:
            joining = NodeJoining(
                self._look,
                self._most,
                self._names,
                setups,
                began=self._nodes.append,
                links=self._links,
                only_for_work=idle_s is not None,
            )
        first = [setups.of(node, opened[node.line.name]) for node in self._nodes]
        make = partial(JoinedNodes, first, joining, idle_s, self._left)
        yield OpenedNode(plan, make, environment, setups.claims, searches)


@contextlib.contextmanager
def held(
    starts: Sequence[NodeStart],
    timeout_s: float = NODE_TIMEOUT_S,
    lease_s: float = LEASE_S,
    look: LookForNodes | None = None,
    most: int | None = None,
    ship: Path | None = None,
    idle_s: float | None = None,
    say: Callable[[str], None] = lambda _words: None,
) -> Iterator[NodeCluster]:
    """Context manager: hold the machines of a run. All agents have ended at its end.

    Args:
        starts: The machines that the run begins with.
        timeout_s: Time (s) without a message of an agent after which its node counts as lost.
        lease_s: Time (s) without a message of the run after which an agent ends all that it has started.
        look: Finds machines that come while the run goes on; None if none can.
        most: Most nodes at a time that are not lost; None for any number.
        ship: Folder that was shipped to the machines, without links; None if they share the file system of the run.
        idle_s: Time (s) without a job after which a machine is given back; None to keep all.
        say: Gets a line for each machine that is left out, since torch there cannot use its GPUs.

    Raises:
        UnfitEnvironment: A node does not answer, has another version, or has no device for the run; or the devices are
            of different models; or all machines are left out.
        UsageError: The user has asked for a device that does not exist there.
    """
    links: list[NodeLink] = []
    try:
        lines = []
        for each in starts:
            links.append(link := each.start())
            lines.append((AgentLine(each.name, link), each))
        nodes = _with_fit_torch([found_node(line, start) for line, start in lines], say)
        _check_models([device for node in nodes for device in node.devices])
        yield NodeCluster(nodes, [each.name for each in starts], timeout_s, lease_s, look, most, links, ship, idle_s)
    finally:
        with contextlib.ExitStack() as undo:
            for link in links:
                undo.callback(link.close)


def _with_fit_torch(nodes: Sequence[ClusterNode], say: Callable[[str], None]) -> list[ClusterNode]:
    """Machines with a torch that can use their GPUs. The agents of the others end.

    Raises:
        UnfitEnvironment: There is none.
    """
    for node in nodes:
        node.ask_torch()
    fit, left_out = [], []
    for node in nodes:
        if reason := node.why_unfit():
            left_out.append(f"the node {node.line.name} is left out: {reason}")
            node.line.close()
        else:
            fit.append(node)
    if not fit:
        raise UnfitEnvironment("\n".join(left_out))
    for line in left_out:
        say(line)
    return fit


def _check_models(devices: Sequence[DeviceInfo]) -> None:
    """Check that the devices of all machines are of one model: what is known of a job holds for it alone.

    Raises:
        UnfitEnvironment: They are not.
    """
    first = devices[0]
    if (other := next((each for each in devices if each.model != first.model), None)) is not None:
        raise UnfitEnvironment(
            f"{other.name} is {other.model}, and {first.name} is {first.model}: all devices of a run are of one model",
            "take the machines with one of them, or choose devices that all machines have with --device",
        )
