"""The controller's side of the warm server: its process and the channel to it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from ecoshare.lane import boot, messages
from ecoshare.lane.files import make_folder, open_to_append
from ecoshare.lane.messages import Message
from ecoshare.runtime.child import Child
from ecoshare.runtime.reaping import TOKEN

SPIN_COUNT = "5000"
"""How long an OpenMP thread of libgomp spins before it sleeps.

With the default, threads of the job that has just handed over its turn spin for about 10 ms on the cores that the next
holder needs; not at all (`OMP_WAIT_POLICY=passive`) doubles the time of short iterations. It does not change what is
computed. Tried on 2 cores; see docs/decisions/0004.
"""


class Spawned:
    """A warm server in a program of its own, which takes messages at once and answers them when torch is loaded."""

    def __init__(self, token: str, log: Path) -> None:
        """Start it.

        Args:
            token: Marks all processes of the run.
            log: Takes what the server itself says on stderr.

        Raises:
            OSError: No process can be made.
        """
        make_folder(log.parent)
        self._channel, theirs = socket.socketpair()
        with theirs, os.fdopen(open_to_append(log), "ab") as errors:
            process = subprocess.Popen(
                boot.command("ecoshare.lane.server", str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment(token),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._process = Child(process.pid, process.wait)

    async def connect(self) -> LaneServer:
        """To be called once, when the run begins."""
        return await LaneServer.connect(self._process, self._channel)

    def end(self) -> None:
        """End it where no run has begun."""
        self._channel.close()
        self._process.end()


class LaneServer:
    """A running warm server."""

    def __init__(self, process: Child, channel: socket.socket) -> None:
        """Use `connect`."""
        self._process = process
        self._channel = channel

    @classmethod
    async def connect(cls, process: Child, channel: socket.socket) -> LaneServer:
        """The server of a process that exists, at the other end of `channel`."""
        supervisor = cls(process, channel)
        supervisor._reader, supervisor._writer = await asyncio.open_connection(sock=channel, limit=1 << 24)
        return supervisor

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send a message; lost where the server is dead, which `messages` tells."""
        if not self._writer.is_closing():
            self._writer.write(messages.encode(message))

    async def messages(self) -> AsyncIterator[Message]:
        """What the server says, until it is dead."""
        while True:
            try:
                line = await self._reader.readline()
            except ConnectionError:  # reset, or broken by what we wrote meanwhile
                return
            if not line.endswith(b"\n"):
                return
            yield messages.decode(line)

    async def close(self) -> int:
        """End the server, and with it every job that still runs; its exit code, negative for a signal."""
        self._writer.close()
        try:
            return await asyncio.wait_for(self._process.wait(), timeout=5.0)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()


def environment(token: str) -> dict[str, str]:
    """Of a server of the run with this token."""
    environment = {**os.environ, TOKEN: token}
    if "GOMP_SPINCOUNT" not in environment and "OMP_WAIT_POLICY" not in environment:
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT
        environment[boot.ADDED_ENVIRONMENT] = "GOMP_SPINCOUNT"
    return environment
