"""Child processes of the controller."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable


class Child:
    """A child of this process that nobody else waits for."""

    def __init__(self, pid: int, reap: Callable[[], int]) -> None:
        """A child that exists.

        Args:
            reap: Waits for its end; its exit code, negative for a signal.
        """
        self.pid = pid
        self._reap_it = reap
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None

    async def wait(self) -> int:
        """Its exit code, negative for a signal, when it is over."""
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
        """Whether it ends within so many seconds."""
        return self._code is not None or bool(select.select([self._handle], [], [], within_s)[0])

    def kill(self) -> None:
        """Have it end at once."""
        if self._code is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        """End it, and wait for that."""
        self.kill()
        self._reap()

    def _reap(self) -> int:
        if self._code is None:
            self._code = self._reap_it()
            os.close(self._handle)
        return self._code
