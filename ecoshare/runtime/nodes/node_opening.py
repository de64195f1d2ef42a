"""Opens the node of a run before its first event: claims, guard, shared memory and contexts of this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.occupancy import Occupancy
from ecoshare.devices.vendor import ContextSharing
from ecoshare.errors import UnfitEnvironment
from ecoshare.policy_names import places_of
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.run_claims import NodeClaims, OneSearch, claim_devices, claim_request, settled
from ecoshare.runtime.measuring.setting_searches import RunSearches
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.cleanup import SPARED, TOKEN
from ecoshare.runtime.nodes.guard_client import Guard
from ecoshare.runtime.nodes.node import Node
from ecoshare.runtime.nodes.run_node import NodeMachine, NodeRun, RunNode
from ecoshare.runtime.planning.plan import Plan

if TYPE_CHECKING:
    from ecoshare.runtime.run import Run


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
def open_this_machine(
    run: Run, search: OneSearch | None = None, occupancy: Occupancy | None = None
) -> Iterator[OpenedNode]:
    """Context manager: this machine is the node of a run; see `HeldMachines.open_node`.

    Args:
        run: The run.
        search: The search, if the run is for one only; otherwise None.
        occupancy: Use of the devices; None if no other run can use them.
    """
    plan = run.plan
    with contextlib.ExitStack() as undo:
        last = undo.enter_context(contextlib.ExitStack())  # after the settings are restored
        cleanup.clear_dead()  # before a claim restores the limits that a dead run left: its budget may need them
        if search is None:
            claims, report = claim_devices(plan.devices, claim_request(plan))
            undo.callback(claims.restore)  # in case the run does not get to it
            plan, searches = settled(plan, [report], lambda name: claims.settings[name].knobs, run.profiler.notes)
        else:
            claims, searches = search.claims, search.searches
            undo.callback(claims.restore)
        searches.begin(run.profiler, run.jobs)
        guard = guard_of(run.token, claims)
        last.callback(guard.dismiss)
        shared = undo.enter_context(cleanup.shared_folder(run.token))
        sharing = undo.enter_context(
            shared_contexts(plan.devices, plan.lanes, places_of(plan.policy, plan.places), shared, run.token)
        )
        claims_of_memory = occupancy.claims if occupancy is not None else {}
        plan = replace(plan, mps=sharing.is_shared, shares_memory=bool(claims_of_memory))
        devices = [
            ClaimedDevice(
                each,
                PowerModel(**power) if (power := run.environment["power_models"].get(each.name)) else None,
                claims.settings.get(each.name),
                partial(plan.idle_w, each),
            )
            for each in plan.devices
        ]
        turns = occupancy.turns if occupancy is not None else ()
        machine = NodeMachine(shared, devices, sharing, guard, turns, claims_of_memory)
        facts = {"shared": str(shared), "mps": sharing.evidence}
        yield OpenedNode(plan, partial(Node, machine), facts, claims, searches)


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
