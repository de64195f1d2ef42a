"""Moves the device memory of a job that waits to the host, and back before its next turn.

::

    park    ──► helper process ──► driver: copy to the host, free the device memory
    resume  ──► helper process ──► driver: copy to the device

The driver's calls may hang or crash, so each transfer has a process of its own and a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ecoshare.devices.nvidia import cuda_checkpoint
from ecoshare.devices.nvidia.cuda_checkpoint import TransferFault as TransferFault

LIMIT_S = 300.0
"""Time (s) that one transfer may take. Reports give 1 to 7 GB/s, and GPUs have up to 141 GB."""

_KILLED_S = 5.0
"""Time (s) for which the end of a killed helper is awaited: inside the driver, a process may not end at once."""


class MemoryTransfer(Protocol):
    """Transfer of the device memory of jobs on one device. Calls for different processes may overlap."""

    async def park(self, pid: int) -> None:
        """Move the device memory of a process to the host; the process must not be at work on the device.

        A cancelled call leaves the process in any state; `resume` brings it back.

        Raises:
            TransferFault: The memory was not moved.
        """
        ...

    async def resume(self, pid: int) -> None:
        """Move the memory back; the device must have room. A process that was not parked runs on.

        Raises:
            TransferFault: The memory was not moved, and the process is lost.
        """
        ...


class NoMemoryTransfer:
    """Transfer for processors: a job pages itself out (`lane/own_memory.py`), and comes back page by page."""

    async def park(self, pid: int) -> None:
        """Do nothing."""

    async def resume(self, pid: int) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """Answer of a helper process."""

    fault: str
    runs_on: bool


class CudaMemoryTransfer:
    """Transfer by the checkpoint calls of NVIDIA's driver."""

    def __init__(
        self,
        environment: Mapping[str, str],
        limit_s: float = LIMIT_S,
        lock_timeout_s: float = cuda_checkpoint.LOCK_TIMEOUT_S,
    ) -> None:
        """Transfer with helper processes.

        Args:
            environment: Environment of the helpers, by which the run recognises its processes.
            limit_s: Time (s) after which a helper is killed.
            lock_timeout_s: Time (s) in which the CUDA calls that a process is in must end.
        """
        self._environment, self._limit_s, self._lock_timeout_s = dict(environment), limit_s, lock_timeout_s

    async def park(self, pid: int) -> None:
        """Move the device memory of a process to the host.

        Raises:
            TransferFault: The memory was not moved.
        """
        answer = await self._ask("park", pid)
        if answer is None:
            # The driver may have done anything up to the whole checkpoint.
            back = await self._ask("resume", pid)
            raise TransferFault(f"the helper that parks process {pid} died", back is not None and not back.fault)
        if answer.fault:
            raise TransferFault(answer.fault, answer.runs_on)

    async def resume(self, pid: int) -> None:
        """Move the memory of a process back to the device.

        Raises:
            TransferFault: The memory was not moved, and the process is lost.
        """
        answer = await self._ask("resume", pid)
        if answer is None:  # the restore ends without its caller, and the process stays locked
            answer = await self._ask("resume", pid)
        if answer is None:
            raise TransferFault(f"the helper that resumes process {pid} died twice", runs_on=False)
        if answer.fault:
            raise TransferFault(answer.fault, answer.runs_on)

    async def _ask(self, action: str, pid: int) -> _Answer | None:
        """Answer of a helper; None if it died without one.

        Raises:
            TransferFault: The helper could not be started, or took too long.
        """
        try:
            helper = await self._start(action, str(pid), str(self._lock_timeout_s))
        except OSError as error:
            why = f"no process to {action} process {pid} can be started: {error.strerror or error}"
            raise TransferFault(why, runs_on=action == "park") from error
        try:
            async with asyncio.timeout(self._limit_s):
                told, _ = await helper.communicate()
        except TimeoutError:
            raise TransferFault(
                f"the driver did not {action} process {pid} in {self._limit_s:g} s", runs_on=False
            ) from None
        finally:
            await _end(helper)
        return _parsed(told)

    async def _start(self, *words: str) -> Process:
        # The helper is isolated, so neither the import path of the caller nor its folder has a part in it. It has a
        # session of its own: a Ctrl-C in the terminal must not interrupt it between two calls of the driver.
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", cuda_checkpoint.__file__, *words),
            env=self._environment,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
        )


def _parsed(told: bytes) -> _Answer | None:
    try:
        return _Answer(**json.loads(told))
    except (ValueError, TypeError):
        return None


async def _end(helper: Process) -> None:
    """Kill the helper if it still runs."""
    if helper.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        helper.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILLED_S):
            await helper.communicate()
