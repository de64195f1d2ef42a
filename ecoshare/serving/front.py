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
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from ecoshare.serving.relay import BrokenOff, ClientGone, NotPassedOn, Outbox, Question, passed_on, relay, words_of
from ecoshare.serving.request_record import RequestRecorder
from ecoshare.serving.sleeping_server import NotAwake, ServerStarting, SleepingServer

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
