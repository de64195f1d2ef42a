"""Takes the requests for a server that sleeps, and passes each on while the server is awake.

::

    client ──► front ── the whole request ──► gate ──► server       503 the server does not listen yet
           ◄──────────── bytes as they come ──────────◄             503 there are too many connections
                                                                    502 it does not wake, or its answer broke off
                                                                    403 only ecoshare may put it to sleep

The server never waits for a client. A request is read to its end before it goes to the gate. Bytes that a client does
not take at once are kept for it, and the turn is given up when the server has sent its last one.
"""

from __future__ import annotations

import errno
import re
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from ecoshare.lane.serving.batch_worker import one_line
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.serving.sleeping_server import NotAwake, ServerStarting, SleepingServer

_FURTHEST_BEHIND_BYTES = 64 << 20
"""Most bytes of an answer that are kept for a client. A client that is further behind loses its connection."""

_RELAY_PIECE_BYTES = 1 << 16

_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
"""Names of headers that are for one connection alone (RFC 9110, section 7.6.1)."""

_FOLD = re.compile(r"\s*[\r\n]\s*")


class NotPassedOn(Exception):
    """The client gets a status and a line in place of an answer of the server."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ClientGone(Exception):
    """The client has closed its connection, or is too far behind."""


class BrokenOff(Exception):
    """The answer of the server has broken off, and a part of it was sent."""


@dataclass(frozen=True, slots=True)
class Question:
    """Request of a client, complete.

    Attributes:
        method: Method.
        target: Path, with its query.
        headers: Headers in their order, without those for one connection.
        body: Body.
        takes_chunks: Whether the client understands an answer in chunks: HTTP/1.1.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    takes_chunks: bool


class Outbox:
    """Bytes on their way to a client. The server does not wait for the client to take them.

    ::

        server   ▏head▕▏piece▕▏piece▕      ▏piece▕▏end▕
        outbox    ──────►sent─►sent─►kept───►kept──►kept─┐
        client    ▏head▕▏piece▕▏piece▕ reads slowly      └► `finish` sends the rest, while the server does other work

    Attributes:
        is_begun: Whether the client gets an answer of the server.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left = connection, bytearray()
        self.is_begun = False

    def put(self, data: bytes) -> None:
        """Send as much as the client takes now, and keep the rest.

        Raises:
            ClientGone: The client has gone, or is too far behind.
        """
        self.is_begun = True
        self._left += data
        timeout_s = self._connection.gettimeout()
        self._connection.setblocking(False)
        try:
            while self._left:
                del self._left[: self._connection.send(self._left)]
        except BlockingIOError:
            pass
        except OSError:
            raise ClientGone from None
        finally:
            self._connection.settimeout(timeout_s)
        if len(self._left) > _FURTHEST_BEHIND_BYTES:
            raise ClientGone

    def finish(self) -> None:
        """Send the rest.

        Raises:
            OSError: The client does not take it.
        """
        if self._left:
            self._connection.sendall(self._left)

    @property
    def is_heard(self) -> bool:
        """Whether the client is still there."""
        poller = select.poll()
        poller.register(self._connection, select.POLLRDHUP)
        return not poller.poll(0)

    def outlasts(self, server: socket.socket) -> bool:
        """Wait for bytes of the server. Return False if the client goes first."""
        poller = select.poll()
        poller.register(self._connection, select.POLLRDHUP)
        poller.register(server, select.POLLIN)
        return server.fileno() in dict(poller.poll())


def relay(question: Question, origin: tuple[str, int], outbox: Outbox) -> int:
    """Ask the server, and put its answer into the outbox as it comes. Return the status of the answer.

    Args:
        question: Request of the client.
        origin: Host and port of the server.
        outbox: Bytes for the client.

    Raises:
        NotPassedOn: The server gives no answer.
        BrokenOff: The answer has no end.
        ClientGone: The client has gone.
    """
    if not outbox.is_heard:
        raise ClientGone
    connection = HTTPConnection(*origin)
    try:
        connection.connect()
        has_host = any(name.lower() == "host" for name, _ in question.headers)
        connection.putrequest(question.method, question.target, skip_host=has_host, skip_accept_encoding=True)
        for name, value in question.headers:
            connection.putheader(name, value)
        connection.endheaders(question.body or None)
        if not outbox.outlasts(connection.sock):
            raise ClientGone
        answer = connection.getresponse()
        for data in _pieces(question, answer):
            outbox.put(data)
        return answer.status
    except (OSError, HTTPException) as error:
        if outbox.is_begun:
            raise BrokenOff from None
        raise NotPassedOn(502, f"the server gives no answer: {one_line(error)}") from None
    finally:
        connection.close()


def _pieces(question: Question, answer: HTTPResponse) -> Iterator[bytes]:
    """Bytes for the client: head, body and end of an answer.

    Raises:
        HTTPException: The answer breaks off.
        OSError: The same.
    """
    left = answer.length  # None if only its end shows how long the body is
    in_chunks = left is None and question.takes_chunks
    yield _head(answer, in_chunks, closes=not question.takes_chunks)
    while left != 0:
        data = answer.read1(_RELAY_PIECE_BYTES if left is None else min(left, _RELAY_PIECE_BYTES))
        if not data:
            if left is not None:
                raise ConnectionError("the answer breaks off")
            break
        left = None if left is None else left - len(data)
        yield b"%x\r\n%b\r\n" % (len(data), data) if in_chunks else data
    if in_chunks:
        yield b"0\r\n\r\n"


def _head(answer: HTTPResponse, in_chunks: bool, closes: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
    lines += [f"{name}: {value}" for name, value in passed_on(answer.headers)]
    lines += ["Transfer-Encoding: chunked"] * in_chunks + ["Connection: close"] * closes
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def passed_on(headers: Message) -> list[tuple[str, str]]:
    """Headers in their order, each in one line, without those that are for one connection alone."""
    left_out = _HOP_BY_HOP | set(words_of(headers.get("Connection", "")))
    return [(name, _FOLD.sub(" ", value)) for name, value in headers.items() if name.lower() not in left_out]


def words_of(header: str) -> list[str]:
    """Words of a header that are separated by commas, in small letters."""
    return [word.strip().lower() for word in header.split(",") if word.strip()]


_LARGEST_BODY_BYTES = 64 << 20
"""Largest body (bytes) of a request."""

_SILENT_S = 60.0
"""Time (s) after which a client that sends nothing, or that takes nothing of a whole answer, loses its connection."""

_RETRY_AFTER_S = 1
"""Time (s) after which a client may try again as long as the server starts."""

_PIECE_BYTES = 1 << 16

_MOST_CONNECTIONS = 512
"""Most connections at once, if the process may have four times as many descriptors."""

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.1
"""Time (s) between two attempts to accept a connection without a descriptor for it."""

_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")


class _End(Enum):
    """End of a request, as the record counts it."""

    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Front:
    """HTTP server before a server that sleeps."""

    def __init__(self, port: int, target_s: float, recorder: RequestRecorder) -> None:
        """Listen at a port of 127.0.0.1. Nothing is answered before `start`.

        Args:
            port: The port; 0 for any.
            target_s: Time (s) within which an answer is due.
            recorder: Record of the requests.

        Raises:
            OSError: The port is in use, or may not be used.
        """
        self._target_s, self._recorder = target_s, recorder
        self._lock = threading.Lock()
        self._listener = _Listener(("127.0.0.1", port), _Connection)
        self._server: SleepingServer | None = None
        self._listener.front = self

    @property
    def port(self) -> int:
        """Port at which it listens."""
        return int(self._listener.server_address[1])

    def start(self, server: SleepingServer) -> None:
        """Pass requests on to a server, in threads of this process."""
        self._server = server
        threading.Thread(target=self._listen, name="ecoshare-front", daemon=True).start()

    def write(self, whole: bool) -> None:
        """Write the record of the last second if it is over, or up to now if `whole`."""
        with self._lock:
            if whole or self._recorder.left_s() <= 0.0:
                self._recorder.write()

    def answer(self, question: Question, outbox: Outbox) -> None:
        """Pass a request on, and its answer back.

        Raises:
            NotPassedOn: The server gives no answer.
            BrokenOff: The answer has no end.
            ClientGone: The client has gone.
        """
        assert self._server is not None, "it was started"
        if self._server.is_call(question.target):
            raise NotPassedOn(403, "only ecoshare may put the server to sleep and wake it")
        arrived_s = time.monotonic()
        due_s = arrived_s + self._target_s
        try:
            with self._server.answering(due_s):
                from_s, end = time.monotonic(), _End.FAILED
                try:
                    status = relay(question, self._server.origin, outbox)
                    end = _End.FAILED if status >= 500 else _End.ANSWERED
                except ClientGone:
                    end = _End.CANCELLED
                    raise
                finally:
                    self._record(end, arrived_s, due_s, from_s)
        except ServerStarting:
            raise NotPassedOn(503, "the server does not listen yet") from None
        except NotAwake as error:
            self._record(_End.FAILED, arrived_s, due_s, None)
            raise NotPassedOn(502, str(error)) from None

    def _record(self, end: _End, arrived_s: float, due_s: float, from_s: float | None) -> None:
        """Record a request. `from_s` is the time (s) at which it went to the server; None if it did not."""
        now_s = time.monotonic()
        with self._lock:
            recorder = self._recorder
            recorder.arrived(1)
            if from_s is not None:
                recorder.called(1)
            if end is _End.FAILED:
                recorder.failed(1)
            elif end is _End.CANCELLED:
                recorder.cancelled(1)
            elif from_s is not None:
                recorder.took(1, now_s - from_s)
                recorder.answered(arrived_s, due_s, now_s)

    def _listen(self) -> None:
        while True:  # `serve_forever` would wake up twice a second
            self._listener.handle_request()


class _Listener(ThreadingMixIn, TCPServer):
    """Listens, with a thread for each connection. `HTTPServer` would look its own name up, which can take seconds."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    front: Front

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        """Listen. Each connection takes two descriptors of this process: its own, and one to the server."""
        super().__init__(address, handler)
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._free = threading.Semaphore(min(_MOST_CONNECTIONS, max(1, open_files // 4)))

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. If this process has no descriptor left, wait a moment before the next attempt.

        Raises:
            OSError: There is no connection.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                time.sleep(_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection, or refuse it if there are too many."""
        if not self._free.acquire(blocking=False):
            with suppress(OSError):
                request.send(_TOO_MANY, socket.MSG_DONTWAIT)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be made
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error unless the client has broken the connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    """Connection of one client."""

    server: _Listener
    protocol_version = "HTTP/1.1"
    timeout = _SILENT_S
    disable_nagle_algorithm = True
    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def pass_on(self) -> None:
        """Answer one request of the client."""
        outbox = Outbox(self.connection)
        try:
            self.server.front.answer(self._question(), outbox)
            outbox.finish()
        except NotPassedOn as refused:
            self._say(refused.status, str(refused))
        except (BrokenOff, ClientGone, OSError):
            self.close_connection = True

    do_DELETE = do_GET = do_HEAD = do_OPTIONS = do_PATCH = do_POST = do_PUT = pass_on

    def log_message(self, *_: object) -> None:
        """Print nothing for each request."""

    def _question(self) -> Question:
        """The request, read to its end.

        Raises:
            NotPassedOn: It cannot be passed on.
            OSError: The client is silent or gone.
        """
        chunks = self.request_version != "HTTP/1.0"
        if not chunks:
            self.close_connection = True
        if not (self.path.isascii() and self.path.isprintable() and self.path.startswith(("/", "*"))):
            self.close_connection = True
            raise NotPassedOn(400, "expected a path that begins with '/'")
        body = self._body()
        left_out = ("content-length", "expect")  # the front has answered `Expect`
        headers = [each for each in passed_on(self.headers) if each[0].lower() not in left_out]
        if body or self.headers.get("Content-Length") or self.command in ("PATCH", "POST", "PUT"):
            headers.append(("Content-Length", str(len(body))))
        return Question(self.command, self.path, headers, body, chunks)

    def _body(self) -> bytes:
        keeps_open, self.close_connection = not self.close_connection, True  # a part of it may be left
        if "Transfer-Encoding" in self.headers:
            if words_of(self.headers["Transfer-Encoding"]) != ["chunked"]:
                raise NotPassedOn(501, "expected a body without an encoding, or in chunks")
            body = b"".join(self._chunks())
        else:
            given = self.headers.get("Content-Length", "0").strip()
            if not (given.isascii() and given.isdigit()):
                raise NotPassedOn(400, "expected a length of the body in bytes")
            length = int(given[:20])
            if length > _LARGEST_BODY_BYTES:
                raise NotPassedOn(413, f"the body has more than {_LARGEST_BODY_BYTES} bytes")
            body = self._read(length)
        self.close_connection = not keeps_open
        return body

    def _chunks(self) -> Iterator[bytes]:
        left = _LARGEST_BODY_BYTES
        while True:
            size = _CHUNK_SIZE.fullmatch(self.rfile.readline(_PIECE_BYTES).partition(b";")[0].strip())
            if size is None:
                raise NotPassedOn(400, "expected the size of a chunk")
            length = int(size[0], 16)
            left -= length
            if left < 0:
                raise NotPassedOn(413, f"the body has more than {_LARGEST_BODY_BYTES} bytes")
            if length == 0:
                break
            yield self._read(length)
            self.rfile.readline(3)
        while self.rfile.readline(_PIECE_BYTES).strip():
            pass  # trailers

    def _read(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionError("the client has gone")
        return data

    def _say(self, status: int, text: str) -> None:
        """Send an answer of the front itself."""
        body = b"" if self.command == "HEAD" else f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", str(_RETRY_AFTER_S))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
