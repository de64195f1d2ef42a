"""Controller side of a lane server that is forked from this process, for jobs that are function calls."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ecoshare.base.thread_settings import ThreadSettings
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.interpreter import ADDED_ENVIRONMENT
from ecoshare.lane.supervisor import forked_server
from ecoshare.runtime.nodes.cleanup import TOKEN
from ecoshare.runtime.nodes.warm_server import Child, LaneServer, environment


class ForkedServer:
    """A forked server that waits for its run. There is only one: this process may have changed since the fork."""

    def __init__(self, function: Callable[[str], None]) -> None:
        """Fork the server. Call this before the process starts threads for the run.

        Args:
            function: Function that each job calls, with the text `called` of its launch message.

        Raises:
            OSError: The process cannot be created.
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
        ctypes.CDLL(None).fflush(None)  # both processes would write buffered output
        made: list[int | OSError] = []

        def fork() -> None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # this fork beside threads is intended
                    pid = os.fork()
            except OSError as error:
                made.append(error)
                return
            if pid == 0:
                self._channel.close()
                forked_server.serve(channel, function)
            made.append(pid)

        # The module `lane.forked_server` gives the reason for the thread, in which the calls will run.
        thread = threading.Thread(target=ThreadSettings().run, args=(fork,))
        thread.start()
        thread.join()
        (result,) = made
        if isinstance(result, OSError):
            raise result
        return result

    async def start(self, token: str, log: Path) -> LaneServer:
        """Assign the server to a run.

        Args:
            token: Token that marks the processes of the run.
            log: File for the stderr of the server.

        Raises:
            UnfitEnvironment: The server was assigned before and has died. It cannot be replaced.
        """
        if self._used:
            raise UnfitEnvironment("the server of the lanes has died, and the trials with it", f"see {log}")
        self._used = True
        added = environment(token)
        names = {TOKEN}
        if "torch" not in sys.modules:  # a loaded torch has read the other variables already
            names |= {ADDED_ENVIRONMENT, *filter(None, added.get(ADDED_ENVIRONMENT, "").split(","))}
        self._channel.sendall(forked_server.greeting(log, {name: added[name] for name in names & added.keys()}, TOKEN))
        return await LaneServer.connect(self._process, self._channel)

    def end(self) -> None:
        """End the server, unless a run has ended it already."""
        self._channel.close()
        self._process.end()


def _exit_code(pid: int) -> int:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:  # the user's process ignores SIGCHLD, so the kernel reaps its children
        return 0
    return os.waitstatus_to_exitcode(status)
