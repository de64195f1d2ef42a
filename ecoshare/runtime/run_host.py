"""The process that a run is driven from: who hears its signals, and where its lanes' server comes from."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ecoshare.runtime import signals
from ecoshare.runtime.warm_server import LaneServer, Spawned


class RunHost(Protocol):
    """See the module."""

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """While the run goes on: calls `asked_to_stop`, in the running loop, whenever the user wants the end."""
        ...

    async def server(self, token: str, log: Path) -> LaneServer:
        """A new server for the lanes of the run with this token, which writes to `log` what it says on stderr.

        Raises:
            OSError: No process can be made.
            UnfitEnvironment: There is no other server after one that has died.
        """
        ...

    def over(self) -> None:
        """The run is over; its result is still to be written."""
        ...


class CommandLineHost:
    """The process of a command, whose signals are the run's."""

    def __init__(self, token: str, log: Path) -> None:
        """Start the run's first server, which begins to load; see `server`."""
        self._first: Spawned | None = Spawned(token, log)

    def close(self) -> None:
        """End the first server where no run has come to use it."""
        if self._first is not None:
            self._first.end()

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """See `RunHost`."""
        return signals.heard(asked_to_stop)

    async def server(self, token: str, log: Path) -> LaneServer:
        """See `RunHost`."""
        spawned, self._first = self._first or Spawned(token, log), None
        return await spawned.connect()

    def over(self) -> None:
        """What is left takes no time: a late Ctrl-C must not cost the result."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
