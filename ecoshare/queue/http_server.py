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
import hmac
import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any, ClassVar, cast

import h11
import uvicorn
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ecoshare.base.clock import loop_s
from ecoshare.errors import QueueDown, UnfitEnvironment
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_documents import Problem
from ecoshare.queue.queue_folder import QueueFolder, socket_address
from ecoshare.queue.routes import PAGES, application
from ecoshare.queue.statuses import StatusFeed
from ecoshare.queue.tcp_entry import TcpEntry

REQUEST_WITHIN_S = 10.0
"""Time (s) within which the header of a request has come. Browsers connect early, and then wait."""


class BoundedConnection(H11Protocol):
    """HTTP connection that ends if no request comes.

    ::

        accepted ──► waits for a request ──► is answered ──► waits for the next ...
                       10 s at most;          TCP: 60 s at most in which
                       ended first if         the client reads nothing
                       there are too many

    Attributes:
        most: Most connections at a time. The next one ends that which has waited longest without a request.
        stalled_s: Time (s) after which a client that reads nothing is gone; None if it may stop for any time, such as
            `ecoshare logs -f | less`.
    """

    most: ClassVar[int] = 512
    stalled_s: ClassVar[float | None] = None

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._since_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since_s = loop_s()
        self._wait_for_request()
        if len(self.connections) >= self.most:
            others = cast("set[BoundedConnection]", self.connections) - {self}
            waiting = [each for each in others if not each._has_request and not each.transport.is_closing()]
            if waiting:  # otherwise uvicorn answers 503
                min(waiting, key=lambda each: each._since_s).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self._stop_watching()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_request:
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request. The answer of one that was malformed in its body is dropped.

        Without this, that answer would raise an error, and any user of the machine could fill the log with them.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            try:
                super().send_400_response(msg)
            except h11.LocalProtocolError:  # the answer to a HEAD has no words
                self.transport.close()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may lie in the buffer already."""
        self._wait_for_request()
        super().on_response_complete()
        if self._has_request:
            self._stop_waiting()

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self._since_s = loop_s()
        self._deadline = self.loop.call_later(REQUEST_WITHIN_S, self._waited)

    def _waited(self) -> None:
        if self.transport.get_write_buffer_size():
            self._wait_for_request()  # the client still reads an answer
        else:
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def _watch(self) -> None:
        """Look whether the client reads, until it has read nearly everything."""
        if self.stalled_s is not None:
            unread = self.transport.get_write_buffer_size()
            self._stalled = self.loop.call_later(self.stalled_s, self._looked, unread)

    def _looked(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._watch()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class TcpConnection(BoundedConnection):
    """Connection over TCP, which other users of the machine can open, too. The client may be a laptop that sleeps."""

    most = 256  # the queue and its jobs need descriptors, and often have 1024
    stalled_s = 60.0


_NAMES = {"queue", "localhost"}
"""Names that a request may be for, beside loopback addresses; `queue` is that of the clients on the socket."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]*)?")
"""A Host header (RFC 9110): an address of IPv6 stands in brackets, and nothing but a port follows."""

_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_BODY_BYTES, _BODY_WITHIN_S = 1 << 16, 1.0
"""Most bytes of the body of a refused request that are taken, and the longest time (s) for that."""

_HEADERS = {
    b"content-security-policy": _CONTENT_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}


class RequestGuard:
    """Middleware that refuses requests of other sites, and those without the token."""

    def __init__(self, app: ASGIApp, token: str | None, public: Collection[str] = ()) -> None:
        """Guard an application.

        Args:
            app: The application.
            token: Token that requests must have; None for a socket that the kernel guards.
            public: Paths that need no token.
        """
        self._app, self._public = app, frozenset(public)
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] != "http":
            return  # nothing else is served

        async def safe_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in _HEADERS]
                message = {**message, "headers": [*kept, *_HEADERS.items()]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _take_body(scope, receive)
        await (self._app if refusal is None else refusal)(scope, receive, safe_send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Answer to a request that may not come in; None for one that may."""
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        # DNS rebinding: the name of another site stands for 127.0.0.1, and its pages send that name.
        if len(hosts) != 1 or not _is_ours(hosts[0].decode("latin-1")):
            return _refused(421, "the request is for another host: the queue is `localhost` or 127.0.0.1")
        if any(origin != b"http://" + hosts[0] for origin in origins):
            return _refused(403, "the request comes from another site")
        if self._token is None or (scope["path"] in self._public and scope["method"] in ("GET", "HEAD")):
            return None
        given = _values(scope, b"authorization")
        kind, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        if kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token):
            return None
        return _refused(401, "the token is wrong or missing: `ecoshare page` prints it", {"www-authenticate": "Bearer"})


async def _take_body(scope: Scope, receive: Receive) -> None:
    """Take a short body of a request that is refused.

    The connection ends with the answer. If a part of the body were unread by then, the kernel would reset the
    connection, and the client might never see the answer.
    """
    if _values(scope, b"expect"):
        return  # the client waits for a word before it sends the body
    left_bytes = _BODY_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BODY_WITHIN_S):
            while left_bytes > 0:
                message = await receive()
                left_bytes -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for each, value in scope["headers"] if each == name]


def _is_ours(host: str) -> bool:
    """Whether a Host header names this machine itself. The port may be another: `ssh -L` forwards from any."""
    if (parts := _HOST.fullmatch(host)) is None:
        return False
    if parts["name"].lower() in _NAMES:
        return True
    try:
        return ipaddress.ip_address(parts["name"].strip("[]")).is_loopback
    except ValueError:
        return False


def _refused(code: int, words: str, headers: dict[str, str] | None = None) -> Response:
    # The connection ends, so that no long body of such a request is waited for.
    return JSONResponse(
        Problem(kind="usage", message=words).model_dump(), code, headers={"connection": "close", **(headers or {})}
    )


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
