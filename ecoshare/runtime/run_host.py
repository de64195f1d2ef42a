"""Host of a run: the process that drives it, handles its signals, and provides the server of its lanes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ecoshare.runtime import signals
from ecoshare.runtime.warm_server import LaneServer, Spawned


class RunHost(Protocol):
    """Process that drives a run."""

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Context manager that calls `asked_to_stop`, in the running loop, each time the user asks for the end."""
        ...

    async def server(self, token: str, log: Path) -> LaneServer:
        """New server for the lanes of a run.

        Args:
            token: Token that marks the processes of the run.
            log: File for the stderr of the server.

        Raises:
            OSError: The process cannot be created.
            UnfitEnvironment: The server has died, and this host cannot replace it.
        """
        ...

    def over(self) -> None:
        """Called when the run is over, before its result is written."""
        ...


class CommandLineHost:
    """Host in the process of a command. The signals of this process are those of the run."""

    def __init__(self, token: str, log: Path) -> None:
        """Start the first server of the run, which begins to load torch; see `server`."""
        self._first: Spawned | None = Spawned(token, log)

    def close(self) -> None:
        """End the first server, unless a run has used it."""
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
        """Ignore Ctrl-C from now on. The rest takes no time, and a late Ctrl-C must not cost the result."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
