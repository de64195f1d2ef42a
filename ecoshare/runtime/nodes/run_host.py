"""Host of a run: the process that drives it, handles its signals, and provides the server of its lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ecoshare.base.clock import REAL, Clock
from ecoshare.base.plural import counted
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import exit_records
from ecoshare.lane.messages import Message, PrepareForks, Ready
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.warm_server import LaneServer, Spawned
from ecoshare.runtime.signals import StopSignals


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
        return self._signals.heard(asked_to_stop)

    async def server(self, token: str, log: Path) -> WarmServer:
        """See `RunHost`: there is none."""
        raise UnfitEnvironment("this run has no lanes on this machine")

    def over(self) -> None:
        self._signals.over()


class LocalHost:
    """Host in the process that asks for the run."""

    clock = REAL

    def __init__(self, token: str, log: Path, signals: StopSignals) -> None:
        """Start the first server of the run, which begins to load torch; see `server`."""
        self._signals = signals
        self._first: Spawned | None = Spawned(token, log)
        self._connected: LaneServer | None = None

    def close(self) -> None:
        """End the first server, unless a run has used it."""
        if self._first is not None:
            self._first.end()

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        return self._signals.heard(asked_to_stop)

    async def ready(self) -> Ready | None:
        """Start message of the first server, before the run gets it; None if it cannot load torch. Call this once."""
        assert self._first is not None, "the run has not begun"
        self._connected = await self._first.connect()
        return await self._connected.ready()

    async def server(self, token: str, log: Path) -> WarmServer:
        connected, self._connected = self._connected, None
        spawned, self._first = self._first or Spawned(token, log), None
        return connected or await spawned.connect()

    def over(self) -> None:
        self._signals.over()


_MOST_DEATHS = 6
"""Number of deaths of the server that ends the run, if no job ends meanwhile."""


class Supervisor:
    """Supervises the processes of the jobs.

    Attributes:
        ready: Start message of the server; None before it has loaded torch.
    """

    def __init__(
        self, host: RunHost, token: str, log: Path, check: Callable[[Ready], None], starts_many: bool = False
    ) -> None:
        """Prepare a supervisor; `open` gets its server.

        Args:
            host: Host of the run, which provides servers.
            token: Token that marks the processes of the run.
            log: File for the stderr of the server.
            check: Raises `UnfitEnvironment` if jobs with the torch of the server could not use their devices. Nothing
                is sent to the server before.
            starts_many: Whether so many jobs are to be launched that a cheap fork is worth its preparation.
        """
        self.ready: Ready | None = None
        self._host, self._token, self._log, self._starts_many = host, token, log, starts_many
        self._check = check
        self._held: list[Message] = []
        self._present: WarmServer | None = None

    async def open(self) -> None:
        """Get the server of the run.

        Raises:
            OSError: The process cannot be created.
            UnfitEnvironment: This host cannot provide one.
        """
        self._present = await self._host.server(self._token, self._log)
        if self._starts_many:
            self._present.send(PrepareForks())

    @property
    def pid(self) -> int:
        """Process ID of the present server."""
        return self._server.pid

    def send(self, message: Message) -> None:
        """Send a message, when the server is ready. It is lost if the server is dead."""
        if self.ready is None:
            self._held.append(message)
        else:
            self._server.send(message)

    async def listen(
        self, heard: Callable[[Message], None], lost: Callable[[], None], live_jobs: Callable[[], int]
    ) -> None:
        """Pass on the messages of the server, until cancelled. A server that dies is replaced.

        Args:
            heard: Gets each message.
            lost: Called when a server has died and its jobs are gone; a new server takes messages by then.
            live_jobs: Number of jobs that have not ended.

        Raises:
            UnfitEnvironment: Jobs could not use their devices, or the server has died several times, and no job ended
                meanwhile.
        """
        deaths, live = 0, live_jobs()
        while deaths < _MOST_DEATHS:
            async for message in self._server.messages():
                if isinstance(message, Ready):
                    self._begin(message)
                heard(message)
            deaths = 1 if live_jobs() < live else deaths + 1
            live = live_jobs()
            await self._replace()
            lost()
        raise UnfitEnvironment(
            f"the jobs' supervisor died {counted(deaths, 'time')}, and no job ended meanwhile", f"see {self._log}"
        )

    def _begin(self, ready: Ready) -> None:
        if self.ready is None:
            self._check(ready)
        self.ready = ready
        held, self._held = self._held, []
        for message in held:
            self._server.send(message)

    async def _replace(self) -> None:
        code = await self._server.close()
        if self.ready is None and code > 0:
            said = exit_records.last_line(self._log)
            raise UnfitEnvironment(f"torch cannot be loaded: {said or 'no reason given'}", "see `ecoshare doctor`")
        await asyncio.to_thread(cleanup.end_all, self._token, spare=True)
        # No other task runs between this assignment and the loop of `lost`. Every later launch goes to the new server,
        # and every earlier one is lost.
        await self.open()
        self._held.clear()

    def kill(self) -> None:
        """Kill the present server, whether it answers or not. All jobs die with it, and a new server replaces it."""
        if self._present is not None:
            self._present.kill()

    def kill_if_stopped(self, _hung: int) -> None:
        """Kill the server if it is stopped. Called when a stopped process holds the lock of a lane.

        A server that runs ends that process itself.
        """
        if self._present is not None and self._present.is_stopped:
            self.kill()

    async def close(self) -> None:
        """End the server, and with it every job that still runs."""
        if self._present is not None:
            await self._present.close()

    @property
    def _server(self) -> WarmServer:
        assert self._present is not None, "`open` comes first"
        return self._present
