"""Machines that come while a run goes on: their agents are started, and their nodes join the run.

::

    look, every few seconds ──► agent ──► NodeFound ──► OpenNode ──► NodeOpened ──► the run, at a calm moment

A machine joins only if it can do what the others do: devices of the same model, settings as found, the same way to
share contexts. Another one is named in a note, and tried again later.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ecoshare.cluster.agent_line import AgentLine
from ecoshare.cluster.agent_messages import AskParking, NodeOpened, ParkingTold, ReleaseDevices
from ecoshare.cluster.cluster_node import ClusterNode, found_node
from ecoshare.cluster.node_link import LookForNodes, NodeLink, NodeStart
from ecoshare.cluster.node_setups import NodeSetups
from ecoshare.cluster.remote_node import NodeSetup
from ecoshare.common.clock import loop_s
from ecoshare.devices import meter
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.nodes.run_node import JoiningDevices
from ecoshare.runtime.planning.planned_limits import ParkingHost, check_host_memory, left_for_jobs

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
    """Opens the nodes of machines that come while a run goes on."""

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
            names: Names of the nodes that the run begins with.
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
        setups, plan = self._setups, self._setups.plan
        node = found_node(line, start, self._check)
        had = plan.devices[0].model
        if (other := next((each for each in node.devices if each.model != had), None)) is not None:
            raise UnfitEnvironment(f"{other.name} is {other.model}, and the run has {had}")
        hosts = self._parking(line, node)
        node = replace(node, host=hosts.get(line.name))
        setups.ask(node)
        opened = setups.opened(line, self._check)
        self._check_claims(opened)
        if setups.knobs:
            setups.knobs.update(opened.report.knobs)
        elif opened.report.knobs:
            line.send(ReleaseDevices())
        memory_bytes = max(each.memory_bytes for each in plan.devices)
        left = left_for_jobs(plan.host_bytes, node.devices, None, hosts)
        devices = tuple(replace(each, memory_bytes=min(memory_bytes, each.memory_bytes)) for each in left)
        for device in devices:
            setups.searches.join(device)
        facts = {
            "devices": [each.as_dict() for each in devices],
            "power_models": meter.as_json(node.power_models),
            "nodes": {line.name: node.facts(opened)},
        }
        return JoiningNode(setups.of(node, opened), JoiningDevices(devices, facts, lambda: self._began(node)))

    def _parking(self, line: AgentLine, node: ClusterNode) -> dict[str, ParkingHost]:
        """The machine, as it parks jobs, if the run parks any.

        Raises:
            UnfitEnvironment: Jobs cannot be parked there.
        """
        plan = self._setups.plan
        if not plan.host_bytes:
            return {}
        line.send(AskParking())
        hosts = {line.name: line.answer(ParkingTold, _PARKING_WITHIN_S, self._check).host}
        check_host_memory(plan.host_bytes, plan.policy, node.devices, plan.lanes, hosts)
        return hosts

    def _check_claims(self, opened: NodeOpened) -> None:
        """Check that the devices share contexts, and may be set, as those of the run.

        Raises:
            UnfitEnvironment: They may not.
        """
        setups, report = self._setups, opened.report
        if opened.is_shared != setups.plan.mps:
            shares = "share contexts by MPS" if setups.plan.mps else "have contexts of their own"
            raise UnfitEnvironment(f"jobs of the run {shares}, and there they would not")
        if setups.plan.profiles is not None and not report.is_as_found:
            raise UnfitEnvironment("its devices have settings of another run")
        if setups.knobs and not (report.knobs and report.is_measured):
            raise UnfitEnvironment(report.refusal or "its devices cannot be set as those of the run are")

    def _check(self) -> None:
        if self._is_over:
            raise _RunOver
