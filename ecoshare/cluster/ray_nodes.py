"""Nodes of a Ray cluster for a run: which there are, and an agent on each."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RuntimeEnvSetupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ecoshare.base.device import PROCESSORS
from ecoshare.base.disk import RUNS
from ecoshare.base.plural import counted
from ecoshare.base.printable import last_line, legible
from ecoshare.cluster.links import LineWriter, NodeStart, ProcessLink, agent_command
from ecoshare.cluster.node_cluster import NodeCluster, held
from ecoshare.cluster.nodes_request import NodesRequest
from ecoshare.errors import UnfitEnvironment, UsageError

WAITS_S = 5.0
"""Longest time (s) of a call that waits for lines."""


LINGERS_S = 0.5
"""Longest time (s) for which an agent keeps lines that can wait, since each pass of lines is a call of Ray."""


def batch(lines: SimpleQueue[bytes | str]) -> list[bytes | str]:
    """Wait for lines of an agent, and take all that are there; text is the reason why no more come.

    Empty if none came for some time.
    """
    found = list[bytes | str]()
    with contextlib.suppress(Empty):
        found.append(lines.get(timeout=WAITS_S))
        while not lines.empty():
            found.append(lines.get())
    return found


_ENDS_WITHIN_S = 15.0

_OF_THE_NODE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that Ray sets for the devices of an actor."""

_OF_THE_MACHINE = ("HOME", "USER", "LOGNAME", "TMPDIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
"""Variables that name folders of a machine, which another one need not have if they share no file system."""


class AgentActor:
    """Starts an agent, and passes its lines on."""

    def __init__(
        self,
        name: str,
        options: Sequence[str],
        environment: Mapping[str, str],
        is_shipped: bool,
    ) -> None:
        """Start an agent.

        Args:
            name: Name of the node in its run.
            options: Options of `ecoshare agent`.
            environment: Environment of the run.
            is_shipped: Whether files were shipped to the working folder of this process.
        """
        keys = (*_OF_THE_NODE, *(_OF_THE_MACHINE if is_shipped else ()))
        own = {key: os.environ[key] for key in keys if key in os.environ}
        self._lines = SimpleQueue[bytes | str]()
        unpacked = ["--unpacked", str(Path.cwd())] if is_shipped else []
        options = [*options, *unpacked, "--lingers", str(LINGERS_S)]
        self._link = ProcessLink(agent_command(name, options), {**environment, **own})
        self._link.listen(self._lines.put, self._lines.put)

    def receive(self) -> list[bytes | str]:
        """Wait for lines of the agent; text is the reason why no more come. See `batch`."""
        return batch(self._lines)

    def send(self, lines: Sequence[bytes]) -> None:
        """Pass lines on to the agent."""
        for line in lines:
            self._link.send(line)

    def end(self) -> None:
        self._link.close()


def ray_agent(
    name: str, node_id: str, gpus: float, options: Sequence[str], environment: Mapping[str, str], is_shipped: bool
) -> RayLink:
    """Start an agent on a node of the Ray cluster that this process is connected to.

    Args:
        name: Name of the node in its run.
        node_id: ID of the node in Ray.
        gpus: Number of GPUs that the agent gets, so that no other work of Ray does.
        options: Options of `ecoshare agent`.
        environment: Environment of the run.
        is_shipped: Whether the connection to the cluster ships files.
    """
    actor = ray.remote(max_restarts=0, num_cpus=0, num_gpus=gpus, concurrency_groups={"out": 1, "in": 1, "end": 1})(
        AgentActor
    )
    found: dict[str, Any] = {}
    if path := environment.get("PYTHONPATH"):  # the actor finds ecoshare where the run has found it
        found["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
    placed: Any = actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False), **found)
    return RayLink(placed.remote(name, options, dict(environment), is_shipped))


class RayLink:
    """See `NodeLink`.

    ::

        run ── RayLink ──► actor ── ProcessLink ──► agent, a clean program
                      Ray         pipes

    The actor does nothing else: its process has threads and signal handlers of Ray, from which no server can be forked.
    If the actor dies, the stdin of the agent ends, and with it the agent.
    """

    def __init__(self, actor: Any) -> None:
        """Link to the agent of an actor.

        Args:
            actor: Handle of an `AgentActor`, which this link ends.
        """
        self._actor = actor
        self._writer = LineWriter(self._actor.send.options(concurrency_group="in").remote)
        self._is_over = False

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:

        def read() -> None:
            while not self._is_over:
                try:
                    found = ray.get(self._actor.receive.options(concurrency_group="out").remote())
                except RayError as error:
                    cause = last_line(str(error))  # Ray puts a traceback before it
                    lost(f"its actor has ended: {cause or type(error).__name__}")
                    return
                for line in found:
                    if isinstance(line, str):
                        lost(line)
                        return
                    heard(line)

        threading.Thread(target=read, name="ecoshare-ray-out", daemon=True).start()

    def send(self, line: bytes, can_wait: bool = False) -> None:
        self._writer.put(line, can_wait)

    def close(self) -> None:
        self._is_over = True
        self._writer.close()
        with contextlib.suppress(RayError, GetTimeoutError):  # it has ended, or its node does not answer
            ray.get(self._actor.end.options(concurrency_group="end").remote(), timeout=_ENDS_WITHIN_S)
        ray.kill(self._actor)


_LEFT_OUT = ("__pycache__", ".pytest_cache", ".mypy_cache")
"""Folders that are not shipped, beside those that Ray leaves out: `.git`, and environments."""

_ANSWERS_WITHIN_S = 5.0
"""Time (s) within which the machine of a cluster takes a connection."""

_FREE_WITHIN_S, _LOOK_S = 10.0, 0.2
"""Time (s) within which Ray has the GPUs of work that has just ended back, and between two looks."""


@contextlib.contextmanager
def on_ray(request: NodesRequest, address: str | None, say: Callable[[str], None]) -> Iterator[NodeCluster]:
    """Context manager: hold nodes of a Ray cluster for a run.

    Args:
        request: The nodes.
        address: Address of the cluster, or `auto`; None for one of this machine alone, which ends with the run.
        say: Gets a line for each node that is left out.

    Raises:
        UsageError: The address has another form, or a device does not exist there.
        UnfitEnvironment: Ray is not installed, the cluster does not answer, or it has too few nodes or free GPUs.
    """
    with _connected(address, request.ship):
        nodes = RayNodes(request, stays=address is None)
        first = nodes.first(ray.nodes())
        await_gpus(nodes.gpus, lambda: ray.available_resources().get("GPU", 0.0))
        with held(
            first,
            request.timeout_s,
            look=nodes,
            most=request.nodes,
            ship=request.ship,
            idle_s=request.idle_s,
            say=say,
        ) as cluster:
            yield cluster


class RayNodes:
    """Nodes of the cluster that suit a run; see `LookForNodes`.

    Nodes without a GPU, such as a head that only keeps the cluster together, are left out if another one has some and
    the run does not name its devices. A machine that comes again is another node of Ray, and has another name. So has
    one that was given back: its devices of before have left the run.

    Attributes:
        gpus: Number of GPUs that the nodes hold with which the run begins.
    """

    def __init__(self, request: NodesRequest, stays: bool) -> None:
        self._request, self._stays = request, stays
        self.gpus = 0
        self._least_gpus = request.gpus_per_node or 0  # of each node
        self._names: dict[str, str] = {}  # by the ID in Ray
        self._left = set[str]()
        self._whole = dict[str, int]()  # resources of a whole node, as the first one has them

    def first(self, nodes: Sequence[Mapping[str, Any]]) -> list[NodeStart]:
        """Nodes that a run begins with.

        Raises:
            UnfitEnvironment: There are too few of them.
        """
        request = self._request
        if request.device is None and any(node["Resources"].get("GPU", 0) for node in nodes if node["Alive"]):
            self._least_gpus = max(self._least_gpus, 1)
        fit = self._fit(nodes)
        if not fit:
            lack = f"has {counted(request.gpus_per_node, 'GPU')}" if request.gpus_per_node else "is alive"
            raise UnfitEnvironment(f"no node of the Ray cluster {lack}")
        if request.nodes is not None and len(fit) < request.nodes:
            found = counted(len(fit), "node")
            raise UnfitEnvironment(f"--nodes {request.nodes}: the Ray cluster has {found} for the run")
        fit = fit[: request.nodes]
        gpus = _gpus(fit[0], request)
        self.gpus = sum(_gpus(node, request) for node in fit)
        self._whole = {"GPU": gpus} if gpus else {"CPU": int(fit[0]["Resources"].get("CPU", 1))}
        return self._starts(fit)

    def present(self) -> list[NodeStart]:

        return self._starts(self._fit(ray.nodes()))

    def ask(self, nodes: int) -> None:
        """See `LookForNodes`: a cluster that Ray scales gets more nodes."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[self._whole] * nodes)

    def _give_back(self, id: str) -> None:
        """Take note that a node has left the run. Ray has it back with the end of its agent."""
        self._left.add(self._names.pop(id))

    def _fit(self, nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        fit = [node for node in nodes if node["Alive"] and node["Resources"].get("GPU", 0) >= self._least_gpus]
        return sorted(fit, key=lambda node: (node["NodeName"], node["NodeID"]))

    def _starts(self, nodes: Sequence[Mapping[str, Any]]) -> list[NodeStart]:
        used = Counter(name for node in nodes for name in {node["NodeManagerHostname"], node["NodeName"]})
        for node in nodes:
            id, name = node["NodeID"], node["NodeName"]
            if id not in self._names:
                again = (f"{name}-{id[:6]}-{number}" for number in count(2))
                choices = chain((node["NodeManagerHostname"], name, f"{name}-{id[:6]}"), again)
                free = (_safe(choice) for choice in choices if used[choice] <= 1)
                taken = {*self._names.values(), *self._left}
                self._names[id] = next(choice for choice in free if choice not in taken)
        return [self._start(node) for node in nodes]

    def _start(self, node: Mapping[str, Any]) -> NodeStart:

        id, request, gpus = node["NodeID"], self._request, _gpus(node, self._request)
        name = self._names[id]
        options = [*request.agent_options(gpus if gpus and request.device is None else None), "--shares-processors"]
        start = partial(ray_agent, name, id, gpus, options, os.environ, request.ship is not None)
        return NodeStart(name, node["NodeManagerAddress"], start, None if self._stays else partial(self._give_back, id))


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _gpus(node: Mapping[str, Any], request: NodesRequest) -> int:
    """Number of GPUs that the agent of a node asks for."""
    if request.device is not None and request.device.partition("/")[0] == PROCESSORS:
        return 0
    return request.gpus_per_node or int(node["Resources"].get("GPU", 0))


@contextlib.contextmanager
def _connected(address: str | None, ship: Path | None) -> Iterator[None]:
    """Context manager: this process is connected to a Ray cluster, which gets the folder `ship`."""
    if ray.is_initialized():
        if ship is not None:
            raise UsageError("--ship: this process is connected to Ray already, and files go with a new connection")
        yield
        return

    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of its later versions
        try:
            _connect(address, ship)
        except RuntimeEnvSetupError as error:
            reason = str(error).partition("the Ray cluster: ")[2].partition(". ")[0] or last_line(str(error))
            hint = "name files to leave out in .gitignore or .rayignore there"
            raise UnfitEnvironment(f"Ray cannot ship {ship}: {reason}", hint) from error
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            shown = f" at {address}" if address is not None else ""
            said = f"no Ray cluster answers{shown}" if isinstance(error, ConnectionError) else f"Ray{shown} refuses"
            raise UnfitEnvironment(f"{said}: {_one_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str | None, ship: Path | None) -> None:
    """Connect this process to a Ray cluster, or start one on this machine, and give it the folder `ship`.

    Raises:
        UsageError: The address has another form.
        ConnectionError: There is no cluster there.
        RuntimeError: It has another version of Ray or of Python.
        RayError: It has another token.
        ValueError: The address is none.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if ship is not None:
        quiet["runtime_env"] = {"working_dir": str(ship), "excludes": [f"/{RUNS}", *_LEFT_OUT]}
    if address is None:
        ray.init(address="local", include_dashboard=False, **quiet)
        return
    if address != "auto":
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal()) or "/" in host:
            raise UsageError(f"--address {address}: expected HOST:PORT or auto")
        try:  # Ray itself tries for minutes
            socket.create_connection((host, int(port)), _ANSWERS_WITHIN_S).close()
        except (OSError, OverflowError) as error:
            raise ConnectionError(error) from None
    ray.init(address=address, **quiet)


def await_gpus(wanted: int, free: Callable[[], float]) -> None:
    """Wait until the GPUs of a run are free. Ray would let its agents wait for ever.

    Args:
        wanted: Number of GPUs that the agents hold.
        free: Returns the number of GPUs of the cluster that no work of Ray holds.

    Raises:
        UnfitEnvironment: Other work of Ray holds them.
    """
    until_s = time.monotonic() + _FREE_WITHIN_S
    while (left := free() if wanted else 0.0) < wanted:
        if time.monotonic() >= until_s:
            raise UnfitEnvironment(
                f"the run needs {counted(wanted, 'GPU')} of the Ray cluster, and {left:g} are free: other work of Ray "
                "holds the rest",
                "wait for its end, or take less with --nodes and --gpus-per-node",
            )
        time.sleep(_LOOK_S)


def _one_line(error: Exception) -> str:
    """Text of an error of Ray, whose lines are joined; its class if there is none."""
    lines = (line.strip() for line in legible(str(error)).splitlines())
    return "; ".join(line.rstrip(".") for line in lines if line) or type(error).__name__
