"""Serves a queue over HTTP, in the loop of the run: on its Unix socket, and over TCP if the user wants that.

Two servers serve one application. Other users can open connections over TCP, and these take no place on the socket.

::

    the queue goes down ──► streams of events end ──► answers on their way are sent
                        ──► what still waits gets 503 with the kind `down` ──► no more connections

uvicorn would cancel what still waits, and answer 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ecoshare.errors import QueueDown, UnfitEnvironment
from ecoshare.queue.bounded_connection import BoundedConnection, TcpConnection
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.page_routes import PAGES
from ecoshare.queue.queue_documents import Problem
from ecoshare.queue.queue_folder import QueueFolder, socket_address
from ecoshare.queue.request_guard import RequestGuard
from ecoshare.queue.routes import application
from ecoshare.queue.status_feed import StatusFeed
from ecoshare.queue.tcp_entry import TcpEntry

_ANSWERED_S = 1.0
"""Time (s) that requests in progress get at the end of the queue. Those that wait for an end are answered at once."""

_END_S = 2.0
"""Time (s) that connections get after that."""

_BODY = "http.response.body"


class OpenRequests:
    """Middleware that answers the requests which are in progress when a queue goes down."""

    def __init__(self, app: ASGIApp, queue: str) -> None:
        """Serve an application.

        Args:
            app: The application.
            queue: Name of the queue.
        """
        self._app = app
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_over = False
        words = Problem.of(QueueDown(f"the queue {queue!r} is going down"))
        self._refusal = JSONResponse(words.model_dump(), 503, headers={"connection": "close"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI defines it."""
        if self._is_over:
            await self._refusal(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None, "uvicorn serves each request in a task of its own"
        has_begun = is_complete = is_read = False

        async def noted_send(message: Message) -> None:
            nonlocal has_begun, is_complete, is_read
            has_begun, is_read = True, False
            is_complete = message["type"] == _BODY and not message.get("more_body", False)
            await send(message)
            is_read = True

        self._tasks.add(task)
        try:
            await self._app(scope, receive, noted_send)
        except asyncio.CancelledError:
            if not self._is_over:
                raise
            task.uncancel()
            if not has_begun:
                await self._refusal(scope, receive, send)
            elif is_read and not is_complete:  # a client that reads nothing would keep this waiting
                await send({"type": _BODY, "body": b""})
        finally:
            self._tasks.discard(task)

    async def end(self, within_s: float) -> None:
        """Let the answers that are on their way be sent, and refuse all other requests from now on.

        Args:
            within_s: Time (s) for the answers, and for the refusals.
        """
        open_now = set(self._tasks)
        if open_now:
            await asyncio.wait(open_now, timeout=within_s)
        self._is_over = True
        if left := set(self._tasks):
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=within_s)


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
    app = OpenRequests(application(queue, feed), queue.name)
    with _listening(folder) as listener:
        servers = [(_server(RequestGuard(app, None), BoundedConnection), listener)]
        if entry is not None:
            servers.append((_server(RequestGuard(app, entry.token, PAGES), TcpConnection), entry.listener))
        serving = [asyncio.create_task(server.serve(sockets=[taken])) for server, taken in servers]
        try:
            yield
        finally:
            await feed.close()
            await app.end(_ANSWERED_S)
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
