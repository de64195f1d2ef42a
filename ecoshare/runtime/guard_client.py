"""The controller's side of its guard (`runtime/guard.py`), which is kept alive while the run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path

from ecoshare.lane import boot
from ecoshare.runtime.child import Child
from ecoshare.runtime.guard import DONE

_BEFORE_AGAIN_S = 0.05
_GOES_WITHIN_S = 5.0


class Guard:
    """The controller's side: keeps one guard alive."""

    def __init__(self, token: str, shared: Path, device: str = "") -> None:
        """Start a guard, which is ready as soon as it exists, since the pipe remembers the controller's death.

        Args:
            token: Of the run whose processes it ends.
            shared: The folder that it removes, which need not exist yet.
            device: Whose settings it puts back; empty where none are set.

        Raises:
            OSError: No process can be made.
        """
        self._command = boot.command("ecoshare.runtime.guard", token, str(shared), device)
        self._start()

    @property
    def pid(self) -> int:
        """The present guard's process."""
        return self._child.pid

    async def keep(self) -> None:
        """Replace the guard whenever it dies, until cancelled."""
        while True:
            await self._child.wait()
            await asyncio.sleep(_BEFORE_AGAIN_S)
            self._pipe.close()
            self._start()

    def dismiss(self) -> None:
        """All is well: let it go."""
        with contextlib.suppress(BrokenPipeError):  # it is dead
            self._pipe.write(DONE)
        self._pipe.close()
        if not self._child.is_over(within_s=_GOES_WITHIN_S):  # it was stopped, say
            self._child.kill()
        self._child.end()

    def _start(self) -> None:
        process = subprocess.Popen(
            self._command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        self._pipe, self._child = process.stdin, Child(process.pid, process.wait)
