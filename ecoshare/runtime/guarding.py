"""The controller's side of its guard (`runtime/guard.py`), which is kept alive while the run goes on."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from ecoshare.lane import boot
from ecoshare.runtime.guard import DONE

_BEFORE_AGAIN_S = 0.05
_GOES_WITHIN_S = 5.0


class Guard:
    """The controller's side: keeps one guard alive."""

    def __init__(self, token: str, shared: Path, device: str = "") -> None:
        """A guard for the run with this token, and for the settings of this device."""
        self._command = boot.command("ecoshare.runtime.guard", token, str(shared), device)
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
            await asyncio.sleep(_BEFORE_AGAIN_S)
            await self.start()

    async def dismiss(self) -> None:
        """All is well: let it go."""
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead
            self._process.stdin.write(DONE)
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GOES_WITHIN_S)
        except TimeoutError:  # it was stopped, say
            self._process.kill()
            await self._process.wait()
