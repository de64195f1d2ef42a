"""Controller side of the guard (`runtime/nodes/guard.py`): it keeps a guard alive during the run."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ecoshare.lane import interpreter
from ecoshare.runtime.nodes.guard import BEAT, DONE
from ecoshare.runtime.nodes.warm_server import Child

_BEFORE_AGAIN_S = 0.05
_BEATS_IN_LEASE = 5
_GOES_WITHIN_S = 5.0


class Guard:
    """Keeps one guard process alive."""

    def __init__(self, token: str, shared: Path, devices: Sequence[tuple[str, str]] = (), lease_s: float = 0.0) -> None:
        """Start a guard. It protects the run at once, since the pipe keeps the news of the controller's death.

        Args:
            token: Token of the run. The guard ends the processes that it marks.
            shared: Folder that the guard removes. It need not exist yet.
            devices: Vendor and key of each device that the guard restores.
            lease_s: Time (s) without a call of `beat` after which the guard kills this process and cleans up; 0 for
                none.

        Raises:
            OSError: The process cannot be created.
        """
        self._lease_s = lease_s
        words = (word for device in devices for word in device)
        self._command = interpreter.program_command(
            "ecoshare.runtime.nodes.guard", token, str(shared), str(lease_s), *words
        )
        self._start()

    @property
    def pid(self) -> int:
        """Process ID of the present guard."""
        return self._child.pid

    async def keep(self) -> None:
        """Replace the guard whenever it dies, until cancelled."""
        while True:
            await self._child.wait()
            await asyncio.sleep(_BEFORE_AGAIN_S)
            self._pipe.close()
            self._start()

    async def beat(self) -> None:
        """Tell the guard now and then that this process goes on, until cancelled."""
        while True:
            with contextlib.suppress(BrokenPipeError, ValueError):  # the guard is dead, and is being replaced
                self._pipe.write(BEAT)
            await asyncio.sleep(self._lease_s / _BEATS_IN_LEASE)

    def dismiss(self) -> None:
        """End the guard without a clean-up, since the run has ended well."""
        with contextlib.suppress(BrokenPipeError):  # the guard is dead
            self._pipe.write(DONE)
        self._pipe.close()
        if not self._child.is_over(within_s=_GOES_WITHIN_S):  # for example, a signal has stopped it
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
