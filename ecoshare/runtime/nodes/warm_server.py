"""Controller side of the warm server: its process, and the channel to it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from ecoshare.lane import interpreter, messages, processes
from ecoshare.lane.files import make_folder, open_to_append
from ecoshare.lane.messages import Message, Ready
from ecoshare.runtime.nodes.cleanup import TOKEN


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


SPIN_COUNT = "5000"
"""Number of spins of an OpenMP thread of libgomp before it sleeps.

With the default, threads of the job that has just handed over its turn spin for about 10 ms on the cores that the next
holder needs. No spinning at all (`OMP_WAIT_POLICY=passive`) doubles the time of short iterations. The value does not
change computed results. It was measured on 2 cores; see docs/decisions/0003.
"""


class Spawned:
    """A warm server in its own program. It takes messages at once, and answers them when torch is loaded."""

    def __init__(self, token: str, log: Path) -> None:
        """Start the server.

        Args:
            token: Token that marks the processes of the run.
            log: File for the stderr of the server itself.

        Raises:
            OSError: The process cannot be created.
        """
        make_folder(log.parent)
        self._channel, theirs = socket.socketpair()
        with theirs, os.fdopen(open_to_append(log), "ab") as errors:
            process = subprocess.Popen(
                interpreter.program_command("ecoshare.lane.supervisor.server", str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment(token),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._process = Child(process.pid, process.wait)

    async def connect(self) -> LaneServer:
        """Connect to the server. Call this once, when the run begins."""
        return await LaneServer.connect(self._process, self._channel)

    def end(self) -> None:
        """End the server if no run has begun."""
        self._channel.close()
        self._process.end()


class LaneServer:
    """A running warm server."""

    def __init__(self, process: Child, channel: socket.socket) -> None:
        """Call `connect` instead."""
        self._process = process
        self._channel = channel
        self._seen: Message | None = None

    @classmethod
    async def connect(cls, process: Child, channel: socket.socket) -> LaneServer:
        """Connect to the server in a process that exists, at the other end of `channel`."""
        supervisor = cls(process, channel)
        supervisor._reader, supervisor._writer = await asyncio.open_connection(sock=channel, limit=1 << 24)
        return supervisor

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(messages.encode(message))

    async def ready(self) -> Ready | None:
        """First message, which `messages` gives once more; None if the server dies before torch is loaded."""
        self._seen = await self._next()
        return self._seen if isinstance(self._seen, Ready) else None

    async def messages(self) -> AsyncIterator[Message]:
        while (message := self._seen or await self._next()) is not None:
            self._seen = None
            yield message

    async def _next(self) -> Message | None:
        """The next message; None if the server is dead."""
        try:
            line = await self._reader.readline()
        except ConnectionError:  # reset, or broken by a message that we wrote meanwhile
            return None
        return messages.decode(line) if line.endswith(b"\n") else None

    @property
    def is_stopped(self) -> bool:
        return processes.is_stopped(self.pid)

    def kill(self) -> None:
        self._process.kill()

    async def close(self) -> int:
        self._writer.close()
        try:
            return await asyncio.wait_for(self._process.wait(), timeout=5.0)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()


def environment(token: str) -> dict[str, str]:
    """Environment of a server of the run with this token."""
    environment = {**os.environ, TOKEN: token}
    if "GOMP_SPINCOUNT" not in environment and "OMP_WAIT_POLICY" not in environment:
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT
        environment[interpreter.ADDED_ENVIRONMENT] = "GOMP_SPINCOUNT"
    return environment
