"""The clock of a run: in tests, time is virtual.

::

    RunHost.clock ──run()──► event loop ──time()──► waits and time limits of all tasks
                  ──monotonic_s()─────────────────► what has no loop: tables of lanes, meters, the begin of the run

A task asks its loop, and so needs no clock of its own: `asyncio.get_running_loop().time()`, or `loop_s()`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Clock:
    """Time of this machine."""

    def monotonic_s(self) -> float:
        """Time (s) on the monotonic clock, which all processes of the machine share. The loop of `run` has it, too."""
        return time.monotonic()

    def unix_s(self) -> float:
        """Time (s) since 1970."""
        return time.time()

    def since_boot(self) -> tuple[str, float]:
        """Id of this boot of the machine, empty if unknown, and time (s) since it, which no one can set."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = ""
        return boot, time.clock_gettime(time.CLOCK_BOOTTIME)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run an event loop of this time until the work is done; returns its result."""
        return asyncio.run(work)


REAL = Clock()


def loop_s() -> float:
    """Time (s) of the running event loop, on the monotonic clock."""
    return asyncio.get_running_loop().time()


def first_error(errors: BaseExceptionGroup[Any]) -> Any:
    """First error of a group, whatever the depth at which it is."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class SideTasks(asyncio.TaskGroup):
    """Group of tasks. Those of `begin` are cancelled when the body of the group has ended, and others are awaited."""

    def __init__(self) -> None:
        super().__init__()
        self._endless: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that ends with the body of the group, at the latest."""
        task = self.create_task(work)
        self._endless.add(task)
        task.add_done_callback(self._endless.discard)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._endless:
            task.cancel()
        await super().__aexit__(kind, error, trace)
