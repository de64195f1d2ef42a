"""Host of a run: the process that drives it, handles its signals, and provides the server of its lanes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.signals import StopSignals
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


class ControllerHost:
    """Host of a run in the process that asks for it. The lanes are on other machines, and have servers of their own."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """See `RunHost`."""
        return self._signals.heard(asked_to_stop)

    async def server(self, token: str, log: Path) -> LaneServer:
        """See `RunHost`: there is none."""
        raise UnfitEnvironment("this run has no lanes on this machine")

    def over(self) -> None:
        """See `RunHost`."""
        self._signals.over()


class LocalHost:
    """Host in the process that asks for the run."""

    def __init__(self, token: str, log: Path, signals: StopSignals) -> None:
        """Start the first server of the run, which begins to load torch; see `server`."""
        self._signals = signals
        self._first: Spawned | None = Spawned(token, log)

    def close(self) -> None:
        """End the first server, unless a run has used it."""
        if self._first is not None:
            self._first.end()

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """See `RunHost`."""
        return self._signals.heard(asked_to_stop)

    async def server(self, token: str, log: Path) -> LaneServer:
        """See `RunHost`."""
        spawned, self._first = self._first or Spawned(token, log), None
        return await spawned.connect()

    def over(self) -> None:
        """See `RunHost`."""
        self._signals.over()
