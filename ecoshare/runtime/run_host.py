"""Host of a run: the process that drives it, handles its signals, and provides the server of its lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ecoshare.common.clock import REAL, Clock
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.messages import Message
from ecoshare.runtime.signals import StopSignals
from ecoshare.runtime.warm_server import Spawned


class WarmServer(Protocol):
    """A running server of lanes, as the run sees it: `warm_server.LaneServer`, and its stand-in in virtual time."""

    @property
    def pid(self) -> int:
        """Process ID of the server."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether its process was stopped, as by SIGSTOP."""
        ...

    def send(self, message: Message) -> None:
        """Send a message. It is lost if the server is dead; then `messages` ends."""
        ...

    def messages(self) -> AsyncIterator[Message]:
        """Messages of the server, until it is dead."""
        ...

    def kill(self) -> None:
        """Kill the server, and with it every job that still runs. Does nothing after `close`."""
        ...

    async def close(self) -> int:
        """End the server, and with it every job that still runs. Return its exit code, negative for a signal."""
        ...


class RunHost(Protocol):
    """Process that drives a run.

    Attributes:
        clock: Time of the run.
    """

    clock: Clock

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Context manager that calls `asked_to_stop`, in the running loop, each time the user asks for the end."""
        ...

    async def server(self, token: str, log: Path) -> WarmServer:
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

    clock = REAL

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """See `RunHost`."""
        return self._signals.heard(asked_to_stop)

    async def server(self, token: str, log: Path) -> WarmServer:
        """See `RunHost`: there is none."""
        raise UnfitEnvironment("this run has no lanes on this machine")

    def over(self) -> None:
        """See `RunHost`."""
        self._signals.over()


class LocalHost:
    """Host in the process that asks for the run."""

    clock = REAL

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

    async def server(self, token: str, log: Path) -> WarmServer:
        """See `RunHost`."""
        spawned, self._first = self._first or Spawned(token, log), None
        return await spawned.connect()

    def over(self) -> None:
        """See `RunHost`."""
        self._signals.over()
