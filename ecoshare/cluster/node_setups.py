"""Opens the nodes of one run on their agents: all that they are told, and all that they share."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from ecoshare.cluster.agent_line import AgentLine
from ecoshare.cluster.agent_messages import NodeOpened, OpenNode
from ecoshare.cluster.cluster_node import ClusterNode
from ecoshare.cluster.node_files import NodeFiles
from ecoshare.cluster.remote_node import NodeSetup, RemoteClaims
from ecoshare.devices.knob import DeviceKnobs
from ecoshare.profiling.profile import Profile
from ecoshare.record.run_documents import recorded_end
from ecoshare.runtime.measuring.run_claims import ClaimRequest
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes.node_opening import RunFacts, node_plan
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_knowledge import contexts

_OPENED_WITHIN_S = 60.0


@dataclass(slots=True)
class NodeSetups:
    """Opens nodes for a run.

    Attributes:
        plan: Plan of the run, for what its first nodes can do.
        run: Facts about the run.
        request: Request to set the devices.
        timeout_s: Time (s) without a message of an agent after which its node counts as lost.
        lease_s: Time (s) without a message of the run after which an agent ends all that it has started.
        ship: Folder that was shipped to the nodes, without links; None if they share the file system of the run.
        knobs: Knobs of each claimed device that can still be set, by its name in the run.
        claims: What becomes of the claimed devices.
        searches: Searches for settings.
    """

    plan: Plan
    run: RunFacts
    request: ClaimRequest
    timeout_s: float
    lease_s: float
    ship: Path | None
    knobs: MutableMapping[str, DeviceKnobs] = field(default_factory=dict)
    claims: RemoteClaims = field(default_factory=RemoteClaims)
    searches: RunSearches = field(default_factory=RunSearches)

    def ask(self, node: ClusterNode) -> None:
        """Ask an agent to open its node."""
        run, plan = self.run, self.plan
        opening = OpenNode(
            run=str(run.folder.path.absolute()),
            now_s=run.now_s(),
            plan=node_plan(plan),
            lanes=plan.lanes,
            names=tuple(device.name for device in node.devices),
            profiles=str(run.profiler.store.folder.absolute()),
            limits=run.profiler.limits,
            only_profiles=run.profiler.stops_the_run,
            request=self.request,
            lease_s=self.lease_s,
            ships=self.ship is not None,
        )
        node.line.send(opening)

    def opened(self, line: AgentLine, meanwhile: Callable[[], None]) -> NodeOpened:
        """Answer of an agent that was asked.

        Args:
            line: The way to the agent.
            meanwhile: Called each second until the answer is there.

        Raises:
            UnfitEnvironment: The node cannot be opened.
        """
        return line.answer(NodeOpened, _OPENED_WITHIN_S, meanwhile)

    def of(self, node: ClusterNode, opened: NodeOpened) -> NodeSetup:
        """Facts about a node that has been opened."""
        run, plan = self.run, self.plan
        files = None
        if self.ship is not None:
            files = NodeFiles(node.line.name, run.folder, self.ship, opened.files, run.profiler.notes)
        return NodeSetup(
            node.line,
            node.start,
            [device.name for device in node.devices],
            (lambda name: files.placed(run.job(name))) if files is not None else run.job,
            contexts(plan.on_processors, run.profiler.made, plan.known),
            self.searches.most_s,
            self.knobs,
            self.claims,
            self._keep_profile,
            files,
            run.profiler.notes,
            self.timeout_s,
            self.lease_s,
            lambda job, attempt: recorded_end(run.folder.job(job), attempt),
        )

    def _keep_profile(self, made: Profile) -> None:
        """Keep a profile of a node, which has stored it itself if it shares the file system."""
        profiler = self.run.profiler
        if self.ship is None:
            profiler.made[made.job_class] = made
        else:
            jobs = (name for name, job in self.run.jobs.items() if job.spec.job_class == made.job_class)
            profiler.take(made, next(jobs))
