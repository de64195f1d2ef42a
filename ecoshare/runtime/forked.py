"""The controller's side of a lanes' server that is forked from this very process, for jobs that are calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import forked
from ecoshare.lane.server import ADDED_ENVIRONMENT
from ecoshare.runtime.reaping import TOKEN
from ecoshare.runtime.supervisor import Supervisor, environment


class ForkedServer:
    """A server that exists, and waits to be told of its run. There is one only: this process may have changed since."""

    def __init__(self, function: Callable[[str], None]) -> None:
        """Fork it; before this process starts threads of its own for the run.

        Args:
            function: What jobs call, each with the word of its launch.

        Raises:
            OSError: No process can be made.
        """
        self._channel, theirs = socket.socketpair()
        self._used = False
        with theirs:
            self._process = _Child(self._fork(theirs, function))

    def _fork(self, channel: socket.socket, function: Callable[[str], None]) -> int:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # what is not written yet would be written twice
        made: list[int | OSError] = []

        def fork() -> None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is meant
                    pid = os.fork()
            except OSError as error:
                made.append(error)
                return
            if pid == 0:
                self._channel.close()
                forked.serve(channel, function)
            made.append(pid)

        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(fork,)
        )  # why in a thread: see `lane.forked`
        thread.start()
        thread.join()
        (result,) = made
        if isinstance(result, OSError):
            raise result
        return result

    async def start(self, token: str, log: Path) -> Supervisor:
        """Tell it which run it serves, and where to write what it says on stderr.

        Raises:
            UnfitEnvironment: It was told before: the run goes on without it.
        """
        if self._used:
            raise UnfitEnvironment("the server of the lanes has died, and the trials with it", f"see {log}")
        self._used = True
        added = environment(token)
        names = {TOKEN}
        if "torch" not in sys.modules:  # else it has read the others long since
            names |= {ADDED_ENVIRONMENT, *filter(None, added.get(ADDED_ENVIRONMENT, "").split(","))}
        self._channel.sendall(forked.greeting(log, {name: added[name] for name in names & added.keys()}, TOKEN))
        return await Supervisor.connect(self._process, self._channel)

    def end(self) -> None:
        """End it where no run has begun or ended it."""
        self._channel.close()
        self._process.end()


class _Child:
    """A child of this process that nobody else waits for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        if self._code is None:
            loop.add_reader(self._handle, over.set)
            try:
                await over.wait()
            finally:
                loop.remove_reader(self._handle)
        return self._reap()

    def kill(self) -> None:
        if self._code is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        self._reap()

    def _reap(self) -> int:
        if self._code is None:
            try:
                _, status = os.waitpid(self.pid, 0)
                self._code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:  # the user's process has its children waited for by the kernel
                self._code = 0
            os.close(self._handle)
        return self._code
