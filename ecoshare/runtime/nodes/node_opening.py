"""Opens the node of a run before its first event: claims, guard, shared memory and contexts of this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.vendor import ContextSharing
from ecoshare.errors import UnfitEnvironment
from ecoshare.policy_names import places_of
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.run_claims import NodeClaims, OneSearch, claim_devices, claim_request, settled
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.cleanup import SPARED, TOKEN
from ecoshare.runtime.nodes.guard_client import Guard
from ecoshare.runtime.nodes.node import Node
from ecoshare.runtime.nodes.run_host import RunHost
from ecoshare.runtime.nodes.run_node import NodeParts, NodePlan, NodeRun, RunNode
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import known_contexts

_MANY = 50
"""Number of jobs from which cheap forks are worth their preparation: 0.15 to 0.35 s, against 6 to 15 ms a job."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run that its node is opened with.

    Attributes:
        folder: The run folder.
        token: Token that marks the processes of the run.
        power_models: Power model of each device, as JSON has it, by the name of the device; None for none.
        profiler: Makes profiles from windows, and stores them.
        jobs: Jobs of the run, by name; more may come.
        began_s: Monotonic time (s) at which the run was first opened.
        host: The process that this runs in.
    """

    folder: RunFolder
    token: str
    power_models: Mapping[str, Mapping[str, Any] | None]
    profiler: Profiler
    jobs: Mapping[str, PlannedJob]
    began_s: float
    host: RunHost

    def now_s(self) -> float:
        """Seconds since the run was first opened."""
        return self.host.clock.monotonic_s() - self.began_s

    def job(self, name: str) -> NodeJob:
        """A job, for the node that shall run it."""
        return self.jobs[name].for_node()


class HeldClaims(Protocol):
    """Claims of the devices of a run. Their end is known when the node is closed."""

    @property
    def unrestored(self) -> Sequence[Restored]:
        """Knobs that could not be restored."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user about the devices, each once."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedNode:
    """Node of a run that may begin.

    Attributes:
        plan: Plan of the run, for what the node can do.
        make: Makes the node.
        environment: Facts for `environment.json`.
        claims: Claims of the devices.
        searches: Searches for settings on the devices.
    """

    plan: Plan
    make: Callable[[NodeRun], RunNode]
    environment: Mapping[str, Any]
    claims: HeldClaims
    searches: RunSearches


@contextlib.contextmanager
def open_this_machine(plan: Plan, run: RunFacts, search: OneSearch | None = None) -> Iterator[OpenedNode]:
    """Context manager: this machine is the node of a run; see `HeldMachines.open_node`.

    Args:
        plan: Plan of the run.
        run: Facts about the run.
        search: The search, if the run is for one only; otherwise None.
    """
    profiler = run.profiler
    with contextlib.ExitStack() as undo:
        last = undo.enter_context(contextlib.ExitStack())  # after the settings are restored
        cleanup.clear_dead()  # before a claim restores the limits that a dead run left: its budget may need them
        if search is None:
            claims, report = claim_devices(plan.devices, claim_request(plan))
            undo.callback(claims.restore)  # in case the run does not get to it
            plan, searches = settled(plan, [report], lambda name: claims.settings[name].knobs, profiler.notes)
        else:
            claims, searches = search.claims, search.searches
            undo.callback(claims.restore)
        searches.begin(profiler, run.jobs)
        guard = guard_of(run.token, claims)
        last.callback(guard.dismiss)
        shared = undo.enter_context(cleanup.shared_folder(run.token))
        sharing = undo.enter_context(
            shared_contexts(plan.devices, plan.lanes, places_of(plan.policy, plan.places), shared, run.token)
        )
        plan = replace(plan, mps=sharing.is_shared)
        devices = [
            ClaimedDevice(
                each,
                PowerModel(**power) if (power := run.power_models.get(each.name)) else None,
                claims.settings.get(each.name),
                partial(plan.idle_w, each),
            )
            for each in plan.devices
        ]
        parts = NodeParts(
            node_plan(plan),
            run.job,
            known_contexts(plan.on_processors, profiler.made, plan.known),
            searches.most_s,
            run.folder,
            shared,
            run.token,
            run.began_s,
            devices,
            sharing,
            profiler,
            guard,
            run.host,
        )
        yield OpenedNode(plan, partial(Node, parts), {"shared": str(shared), "mps": sharing.evidence}, claims, searches)


@contextlib.contextmanager
def shared_contexts(
    devices: Sequence[DeviceInfo], lanes: int, places: int, folder: Path, token: str
) -> Iterator[ContextSharing]:
    """Context manager: the processes of a run share contexts on the devices of this machine; see `Vendor`.

    Args:
        devices: Devices of one vendor.
        lanes: Number of lanes of each device.
        places: Most jobs in a lane.
        folder: Private folder for sockets.
        token: Token that marks the processes of the run.
    """
    environment = {**os.environ, TOKEN: token, SPARED: "1"}
    sharing = registry.vendor(devices[0].vendor).share_contexts(devices, lanes, places, folder, environment)
    try:
        yield sharing
    finally:
        sharing.end()


def node_plan(plan: Plan) -> NodePlan:
    """Decisions of a plan that its nodes need."""
    return NodePlan(
        places_of(plan.policy, plan.places),
        parks=bool(plan.host_bytes),
        serves=any(job.spec.service is not None for job in plan.jobs),
        only_tunes=plan.only_tune,
        starts_many=len(plan.jobs) + sum(each.options.count for each in plan.sweeps) >= _MANY,
    )


def guard_of(token: str, claims: NodeClaims, lease_s: float = 0.0) -> Guard:
    """Guard of the processes of a run on this machine, and of its claimed devices.

    Args:
        token: Token that marks the processes.
        claims: Claimed devices.
        lease_s: See `Guard`.

    Raises:
        UnfitEnvironment: The process cannot be created.
    """
    try:
        return Guard(token, Path(cleanup.shared_path(token)), claims.keys, lease_s)
    except OSError as error:
        raise UnfitEnvironment(f"the guard of the run cannot be started: {error.strerror or error}") from error
