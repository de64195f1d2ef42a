"""The controller's side of a lanes' server that is forked from this very process, for jobs that are calls."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import forked_server
from ecoshare.lane.boot import ADDED_ENVIRONMENT
from ecoshare.runtime.child import Child
from ecoshare.runtime.reaping import TOKEN
from ecoshare.runtime.warm_server import LaneServer, environment


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
            pid = self._fork(theirs, function)
        self._process = Child(pid, partial(_exit_code, pid))

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
                forked_server.serve(channel, function)
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

    async def start(self, token: str, log: Path) -> LaneServer:
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
        self._channel.sendall(forked_server.greeting(log, {name: added[name] for name in names & added.keys()}, TOKEN))
        return await LaneServer.connect(self._process, self._channel)

    def end(self) -> None:
        """End it where no run has begun or ended it."""
        self._channel.close()
        self._process.end()


def _exit_code(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # the user's process has its children waited for by the kernel
        return 0
    return os.waitstatus_to_exitcode(status)
