"""The controller's side of the warm server: its process and the channel to it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from ecoshare.lane import boot, messages
from ecoshare.lane.messages import Message
from ecoshare.lane.server import ADDED_ENVIRONMENT
from ecoshare.runtime.reaping import TOKEN

SPIN_COUNT = "5000"
"""How long an OpenMP thread of libgomp spins before it sleeps.

With the default, threads of the job that has just handed over its turn spin for about 10 ms on the cores that the next
holder needs; not at all (`OMP_WAIT_POLICY=passive`) doubles the time of short iterations. It does not change what is
computed. Tried on 2 cores; see docs/decisions/0004.
"""


class Process(Protocol):
    """The server's process, as of `asyncio.subprocess`."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    async def wait(self) -> int:
        """Its exit code, negative for a signal, when it is over."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class Supervisor:
    """A running warm server."""

    def __init__(self, process: Process, channel: socket.socket) -> None:
        """Use `start` or `connect`."""
        self._process = process
        self._channel = channel

    @classmethod
    async def start(cls, token: str, log: Path) -> Supervisor:
        """Start a warm server; it takes messages at once and answers them when torch is loaded.

        Args:
            token: Marks all processes of the run.
            log: Takes what the server itself says on stderr.

        Raises:
            OSError: No process can be made.
        """
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *boot.command("ecoshare.lane.server", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                env=environment(token),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return await cls.connect(process, ours)

    @classmethod
    async def connect(cls, process: Process, channel: socket.socket) -> Supervisor:
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
        environment[ADDED_ENVIRONMENT] = "GOMP_SPINCOUNT"
    return environment
