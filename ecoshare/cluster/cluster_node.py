"""A machine of a cluster, as its agent has told it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ecoshare
from ecoshare.cluster.agent_line import AgentLine
from ecoshare.cluster.agent_messages import PROTOCOL, NodeFound, NodeOpened
from ecoshare.cluster.node_link import NodeStart
from ecoshare.devices.meter import PowerModel
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.planning.planned_limits import ParkingHost
from ecoshare.values.device import DeviceInfo

_FOUND_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A machine of a cluster.

    Attributes:
        line: The way to its agent.
        start: The machine.
        token: Token that marks the processes of the run there.
        devices: Devices, with their names in a run; see `device_name`.
        power_models: Power model of each device, by its name in a run; None for none.
        is_shared: Whether another run uses one of the devices.
        host: The machine, as it parks jobs; None if its agent was not asked.
    """

    line: AgentLine
    start: NodeStart
    token: str
    devices: tuple[DeviceInfo, ...]
    power_models: Mapping[str, PowerModel | None]
    is_shared: bool
    host: ParkingHost | None = None

    def facts(self, opened: NodeOpened) -> dict[str, Any]:
        """Facts about the opened node for `environment.json`."""
        return {"token": self.token, "mps": opened.evidence}


def device_name(line: AgentLine, device: str) -> str:
    """Name in the run of a device: the name of its node, a slash, and the name there."""
    return f"{line.name}/{device}"


def found_node(line: AgentLine, start: NodeStart, meanwhile: Callable[[], None] = lambda: None) -> ClusterNode:
    """Machine of an agent that has just been started.

    Args:
        line: The way to the agent.
        start: The machine.
        meanwhile: Called each second until the agent has told what it has found.

    Raises:
        UnfitEnvironment: The node does not answer, has another version, or has no device for the run.
        UsageError: The user has asked for a device that does not exist there.
    """
    found = line.answer(NodeFound, _FOUND_WITHIN_S, meanwhile)
    if (found.protocol, found.ecoshare) != (PROTOCOL, ecoshare.__version__):
        raise UnfitEnvironment(
            f"the node {line.name} has ecoshare {found.ecoshare}, and this machine has {ecoshare.__version__}",
            "install the same version on all nodes",
        )
    names = {device.name: device_name(line, device.name) for device in found.devices}
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
    return ClusterNode(line, start, found.token, devices, models, found.is_shared)
