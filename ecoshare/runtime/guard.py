"""The guard: a small process that outlives the controller and clears up after it.

::

    controller ──stdin pipe──► guard
        ends well: "done"        exits
        dies:      end of file   ends every process of the run, removes its shared memory

The pipe's other end is held by the controller alone, so the kernel itself tells of its death. The controller starts a
new guard when this one dies; each needs the other only while nothing goes wrong.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from pathlib import Path

from ecoshare.lane import boot
from ecoshare.runtime import sweep

_DONE = b"done"


def main(args: list[str]) -> None:
    """Wait for the end of the controller that started this; `args` are the run's token and shared-memory folder."""
    token, shared = args
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() == _DONE:
        return
    sweep.end_all(token)
    shutil.rmtree(shared, ignore_errors=True)


class Guard:
    """The controller's side: keeps one guard alive."""

    def __init__(self, token: str, shared: Path) -> None:
        """A guard for the run with this token."""
        self._command = boot.command("ecoshare.runtime.guard", token, str(shared))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The present guard's process."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the guard; it is ready as soon as it exists, since the pipe remembers the controller's death.

        Raises:
            OSError: No process can be made.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def keep(self) -> None:
        """Replace the guard whenever it dies, until cancelled."""
        while True:
            assert self._process is not None
            await self._process.wait()
            await self.start()

    async def dismiss(self) -> None:
        """All is well: let it go."""
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(_DONE)
            self._process.stdin.close()
            await self._process.wait()
        except (BrokenPipeError, ConnectionResetError):
            await self._process.wait()
