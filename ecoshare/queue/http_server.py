"""Serves a queue over HTTP, in the loop of the run: on its Unix socket, and over TCP if the user wants that.

Two servers serve one application. Other users can open connections over TCP, and these take no place on the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from ecoshare.errors import UnfitEnvironment
from ecoshare.queue.bounded_connection import BoundedConnection, TcpConnection
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.page_routes import PAGES
from ecoshare.queue.queue_folder import QueueFolder, socket_address
from ecoshare.queue.request_guard import RequestGuard
from ecoshare.queue.routes import application
from ecoshare.queue.status_feed import StatusFeed
from ecoshare.queue.tcp_entry import TcpEntry

_END_S = 2.0
"""Time (s) that open requests get at the end of the queue."""


class _Server(uvicorn.Server):
    """Server that leaves signals to the run."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def served(folder: QueueFolder, entry: TcpEntry | None, queue: LiveQueue) -> AsyncIterator[None]:
    """Context manager: clients reach the queue, on its socket and at the entry over TCP, if there is one.

    Raises:
        UnfitEnvironment: The socket cannot be made.
    """
    feed = StatusFeed(queue)
    app = application(queue, feed)
    with _listening(folder) as listener:
        servers = [(_server(RequestGuard(app, None), BoundedConnection), listener)]
        if entry is not None:
            servers.append((_server(RequestGuard(app, entry.token, PAGES), TcpConnection), entry.listener))
        serving = [asyncio.create_task(server.serve(sockets=[taken])) for server, taken in servers]
        try:
            yield
        finally:
            await feed.close()
            for server, _ in servers:
                server.should_exit = True
            await asyncio.wait(serving, timeout=2 * _END_S)
            for task in serving:
                task.cancel()


def _server(app: RequestGuard, connection: type[BoundedConnection]) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="error",  # any user of the machine can send malformed requests, and fill the disk with warnings
            access_log=False,
            lifespan="off",
            ws="none",
            http=connection,
            limit_concurrency=connection.most,
            timeout_graceful_shutdown=int(_END_S),
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
    )


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
