"""The program `ecoshare agent`: the server of the lanes loads torch while the agent itself is loaded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.cluster.links import BegunAgent, LineWriter
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.run_host import LocalHost
from ecoshare.runtime.signals import ENDING, CommandSignals

if TYPE_CHECKING:
    from ecoshare.cluster.node_agent import Agent
    from ecoshare.devices.occupancy import DeviceAdmission


class Pipes:
    """Lines from stdin and to stdout. Neither a run that does not read nor one that does not write blocks the agent."""

    def __init__(self, lingers_s: float) -> None:
        """Take both; see `LineWriter`. What else this program prints goes to stderr."""
        out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._writer = LineWriter(lambda lines: out.write(b"".join(lines)), lingers_s=lingers_s)

    def send(self, line: bytes, can_wait: bool = False) -> None:
        self._writer.put(line, can_wait)

    def read(self, hear: Callable[[bytes | None], None]) -> None:
        """Pass each line on in the running loop, and None at the end."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            # An object of its own: the interpreter aborts at its end if a thread still reads `sys.stdin`.
            with contextlib.suppress(RuntimeError), os.fdopen(os.dup(sys.stdin.fileno()), "rb") as lines:
                for line in lines:
                    loop.call_soon_threadsafe(hear, line)
                loop.call_soon_threadsafe(hear, None)  # RuntimeError: the loop is closed

        threading.Thread(target=read, name="ecoshare-agent-in", daemon=True).start()

    def close(self, within_s: float = 5.0) -> None:
        """Send what is left."""
        self._writer.close()
        self._writer.join(within_s)


def run_agent(
    name: str,
    device: str | None,
    count: int | None,
    admission: DeviceAdmission,
    shares_processors: bool,
    unpacked: Path | None,
    lingers_s: float = 0.0,
) -> int:
    """Be the agent of a node. Return the exit code.

    Args:
        name: Name of the node in its run.
        device: Names of the devices; see `find_all`.
        count: Number of devices; see `find_all`.
        admission: Reaction to a run that uses a device.
        shares_processors: Whether the engine gives the processors to other work, too.
        unpacked: Folder that was shipped to this machine; None if none was.
        lingers_s: Longest time (s) for which lines that can wait are kept.
    """
    for number in ENDING:  # it is the run that stops the jobs
        signal.signal(number, signal.SIG_IGN)
    pipes = Pipes(lingers_s)
    token = secrets.token_hex(8)
    with cleanup.shared_folder(token) as shared:
        log = RunFolder(shared).supervisor_log
        begun = BegunAgent(
            name, token, shared, log, LocalHost(token, log, CommandSignals()), shares_processors, unpacked
        )
        try:
            is_well = _served(begun, pipes, device, count, admission)
        finally:
            begun.host.close()
    pipes.close()
    return 0 if is_well else 1


def _served(begun: BegunAgent, pipes: Pipes, device: str | None, count: int | None, admission: DeviceAdmission) -> bool:
    """Serve a run to its end. Return False if that has failed, and the run was told why."""
    import ecoshare
    from ecoshare.base.clock import first_error
    from ecoshare.cluster.agent_calls import PROTOCOL, AgentCalls, NodeFound, RunCalls, answer, call
    from ecoshare.cluster.node_agent import Agent, RunGone
    from ecoshare.devices.choice import find_all
    from ecoshare.devices.occupancy import occupied
    from ecoshare.devices.registry import power_models
    from ecoshare.errors import EcoshareError, UsageError

    failure: tuple[str, str, bool] | None = None
    try:
        with occupied(partial(find_all, device, count), admission, lambda _words: None) as occupancy:
            models = power_models(occupancy.devices)
            version, token = ecoshare.__version__, begun.token
            found = NodeFound(PROTOCOL, version, token, occupancy.devices, models, occupancy.is_shared)
            answer(pipes.send, AgentCalls.found, found)
            asyncio.run(_serve(Agent(begun, pipes.send, occupancy, models), pipes))
    except* RunGone as gone:
        failure = str(first_error(gone)), "", False
    except* EcoshareError as errors:
        failure = str(error := first_error(errors)), error.hint, isinstance(error, UsageError)
    except* OSError as errors:
        reason = f"{(error := first_error(errors)).filename or 'the node'}: {error.strerror or error}"
        failure = reason, "", False
    except* Exception as errors:
        traceback.print_exception(errors)
        failure = f"its agent has a defect: {first_error(errors)!r}", "", False
    if failure is not None:
        call(pipes.send, RunCalls.failed, *failure)
    return failure is None


async def _serve(agent: Agent, pipes: Pipes) -> None:
    pipes.read(agent.hear)
    await agent.serve()
