"""A link to an agent that an actor of Ray has started on another machine.

::

    run ── RayLink ──► actor ── ProcessLink ──► agent, a clean program
                  Ray         pipes

The actor does nothing else: its process has threads and signal handlers of Ray, from which no server can be forked. If
the actor dies, the stdin of the agent ends, and with it the agent.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ecoshare.cluster.line_batch import batch
from ecoshare.cluster.line_writer import LineWriter
from ecoshare.cluster.process_link import ProcessLink, agent_command
from ecoshare.common.printable import last_line

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
        patient: tuple[bytes, ...],
        is_shipped: bool,
    ) -> None:
        """Start an agent.

        Args:
            name: Name of the node in its run.
            options: Options of `ecoshare agent`.
            environment: Environment of the run.
            patient: Beginnings of lines that can wait. They come from the run, since it takes long to load them here.
            is_shipped: Whether files were shipped to the working folder of this process.
        """
        keys = (*_OF_THE_NODE, *(_OF_THE_MACHINE if is_shipped else ()))
        own = {key: os.environ[key] for key in keys if key in os.environ}
        self._lines, self._patient = SimpleQueue[bytes | str](), patient
        unpacked = ["--unpacked", str(Path.cwd())] if is_shipped else []
        self._link = ProcessLink(agent_command(name, [*options, *unpacked]), {**environment, **own})
        self._link.listen(self._lines.put, self._lines.put)

    def receive(self) -> list[bytes | str]:
        """Wait for lines of the agent; text is the reason why no more come. See `batch`."""
        return batch(self._lines, self._patient)

    def send(self, lines: Sequence[bytes]) -> None:
        """Pass lines on to the agent."""
        for line in lines:
            self._link.send(line)

    def end(self) -> None:
        """End the agent."""
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
    from ecoshare.cluster.agent_messages import PATIENT  # not above: the actor loads this module

    actor = ray.remote(max_restarts=0, num_cpus=0, num_gpus=gpus, concurrency_groups={"out": 1, "in": 1, "end": 1})(
        AgentActor
    )
    found: dict[str, Any] = {}
    if path := environment.get("PYTHONPATH"):  # the actor finds ecoshare where the run has found it
        found["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
    placed: Any = actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False), **found)
    return RayLink(placed.remote(name, options, dict(environment), PATIENT, is_shipped))


class RayLink:
    """See `NodeLink`."""

    def __init__(self, actor: Any) -> None:
        """Link to the agent of an actor.

        Args:
            actor: Handle of an `AgentActor`, which this link ends.
        """
        self._actor = actor
        self._writer = LineWriter(self._actor.send.options(concurrency_group="in").remote)
        self._is_over = False

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """See `NodeLink`."""

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

    def send(self, line: bytes) -> None:
        """See `NodeLink`."""
        self._writer.put(line)

    def close(self) -> None:
        """See `NodeLink`."""
        self._is_over = True
        self._writer.close()
        with contextlib.suppress(RayError, GetTimeoutError):  # it has ended, or its node does not answer
            ray.get(self._actor.end.options(concurrency_group="end").remote(), timeout=_ENDS_WITHIN_S)
        ray.kill(self._actor)
