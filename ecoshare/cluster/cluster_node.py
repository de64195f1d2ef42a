"""A machine of a cluster, as its agent has told it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

import ecoshare
from ecoshare.base.device import DeviceInfo
from ecoshare.cluster import agent_calls
from ecoshare.cluster.agent_calls import PROTOCOL, AgentCalls, Call, NodeOpened
from ecoshare.cluster.links import NodeLink, NodeStart
from ecoshare.devices.meter import PowerModel
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.runtime.planning.planned_limits import ParkingHost

_MEANWHILE_S = 1.0

P = ParamSpec("P")
R = TypeVar("R")


class AgentLine:
    """Calls between a run and one agent.

    Attributes:
        name: Name of the node in the run.
    """

    def __init__(self, name: str, link: NodeLink) -> None:
        """Begin to listen.

        Args:
            name: Name of the node.
            link: The link, which nothing else uses.
        """
        self.name, self._link = name, link
        self._inbox: SimpleQueue[bytes | str] = SimpleQueue()  # text: the reason why no more lines come
        self._wake: Callable[[], object] = lambda: None
        link.listen(self._put, self._put)

    def _put(self, line: bytes | str) -> None:
        self._inbox.put(line)
        self._wake()

    def call(self, method: Callable[Concatenate[AgentCalls, P], object], *values: P.args, **names: P.kwargs) -> None:
        """Call a method of the agent. The call is lost if the agent has gone."""
        agent_calls.call(self._link.send, method, *values, **names)

    def answer(
        self,
        method: Callable[Concatenate[AgentCalls, P], Coroutine[Any, Any, R]],
        within_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> R:
        """The next answer, which must be one of this method. No loop hears the agent yet.

        Args:
            method: Method that has the answer.
            within_s: Longest time (s) to wait.
            meanwhile: Called each second until it is there.

        Raises:
            UnfitEnvironment: The agent does not answer in time, has ended, or cannot do what it was asked for.
            UsageError: The user has asked for something that does not exist there.
        """
        until_s, line = time.monotonic() + within_s, None
        while line is None:
            try:
                line = self._inbox.get(timeout=_MEANWHILE_S)
            except Empty:
                if time.monotonic() > until_s:
                    raise UnfitEnvironment(f"the node {self.name} does not answer within {within_s:g} s") from None
                meanwhile()
        if isinstance(line, str):
            raise UnfitEnvironment(f"the node {self.name} is lost: {line}")
        try:
            found = agent_calls.read(line)
        except ValueError as error:
            raise UnfitEnvironment(
                f"the node {self.name} sends what this version of ecoshare does not know: {error}",
                "install the same version on all nodes",
            ) from error
        if found.name == "failed":
            error_text, hint, is_usage = found.values
            raise (UsageError if is_usage else UnfitEnvironment)(f"the node {self.name}: {error_text}", hint)
        if not found.is_answer or found.name != method.__name__:
            raise UnfitEnvironment(f"the node {self.name} answers with {found.name}")
        value: R = found.values[0]
        return value

    def hear(self, heard: Callable[[Call], None], lost: Callable[[str], None]) -> None:
        """Pass on each call in the running loop, from now on.

        Args:
            heard: Gets each call.
            lost: Gets the reason, one line, when no more calls come.
        """
        loop = asyncio.get_running_loop()

        def pass_on() -> None:
            with contextlib.suppress(Empty):
                while True:
                    line = self._inbox.get_nowait()
                    if isinstance(line, str):
                        lost(line)
                        continue
                    try:
                        found = agent_calls.read(line)
                    except ValueError as error:
                        lost(f"its agent is not understood: {error}")
                        continue
                    heard(found)

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(pass_on)

        self._wake = wake
        pass_on()

    def close(self) -> None:
        """End the agent, if it has not ended."""
        self._link.close()


_FOUND_WITHIN_S = 60.0

_TORCH_WITHIN_S = 300.0
"""Longest time (s) in which a machine loads torch, from a slow disk that others read, too."""


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

    @property
    def has_gpus(self) -> bool:
        return not self.devices[0].on_processors

    def ask_torch(self) -> None:
        """Ask whether torch can use the GPUs, if the machine has some; `why_unfit` takes the answer."""
        if self.has_gpus:
            self.line.call(AgentCalls.why_unfit)

    def why_unfit(self, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Reason, one line with its remedy, why no job could use the GPUs; empty if jobs can.

        Args:
            meanwhile: Called each second until torch is loaded there.

        Raises:
            UnfitEnvironment: The agent does not answer.
        """
        return self.line.answer(AgentCalls.why_unfit, _TORCH_WITHIN_S, meanwhile) if self.has_gpus else ""

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
    found = line.answer(AgentCalls.found, _FOUND_WITHIN_S, meanwhile)
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
