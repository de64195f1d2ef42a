"""Serves a queue over HTTP on its Unix socket, in the loop of the run."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from ecoshare.errors import UnfitEnvironment
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_folder import QueueFolder, socket_address
from ecoshare.queue.routes import application

_MOST_CONNECTIONS = 512
_END_S = 2.0
"""Time (s) that open requests get at the end of the queue."""


class _Server(uvicorn.Server):
    """Server that leaves signals to the run."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def served(folder: QueueFolder, queue: LiveQueue) -> AsyncIterator[None]:
    """Context manager: clients of the same user reach the queue.

    Raises:
        UnfitEnvironment: The socket cannot be made.
    """
    config = uvicorn.Config(
        application(queue),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=int(_END_S),
        server_header=False,
        date_header=False,
    )
    server = _Server(config)
    with _listening(folder) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([serving], timeout=2 * _END_S)
            serving.cancel()


@contextlib.contextmanager
def _listening(folder: QueueFolder) -> Iterator[socket.socket]:
    """Context manager: the socket of the queue. One that a killed process has left is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder.socket.unlink(missing_ok=True)
        with socket_address(folder.socket) as address:
            listener.bind(address)
        folder.socket.chmod(0o600)
    except OSError as error:
        listener.close()
        raise UnfitEnvironment(f"cannot make {folder.socket}: {error.strerror or error}") from error
    try:
        yield listener
    finally:
        listener.close()
        folder.socket.unlink(missing_ok=True)
