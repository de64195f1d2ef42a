"""Child processes of the controller."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable


class Child:
    """A child process of this process. Only this object waits for its end."""

    def __init__(self, pid: int, reap: Callable[[], int]) -> None:
        """Take over a child that exists.

        Args:
            reap: Waits for the end of the child and returns its exit code; negative for a signal.
        """
        self.pid = pid
        self._reap_it = reap
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None

    async def wait(self) -> int:
        """Wait for the end of the child and return its exit code; negative for a signal."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        if self._code is None:
            loop.add_reader(self._handle, over.set)
            try:
                await over.wait()
            finally:
                loop.remove_reader(self._handle)
        return self._reap()

    def is_over(self, within_s: float) -> bool:
        """Whether the child ends within `within_s` seconds. This call waits for it that long."""
        return self._code is not None or bool(select.select([self._handle], [], [], within_s)[0])

    def kill(self) -> None:
        """Send SIGKILL to the child. Does nothing after it was waited for."""
        if self._code is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        """Kill the child and wait for its end."""
        self.kill()
        self._reap()

    def _reap(self) -> int:
        if self._code is None:
            self._code = self._reap_it()
            os.close(self._handle)
        return self._code
