"""Passes one request on to a server on this machine, and the bytes of its answer back as they come.

::

    server   ▏head▕▏piece▕▏piece▕      ▏piece▕▏end▕
    outbox    ──────►sent─►sent─►kept───►kept──►kept─┐
    client    ▏head▕▏piece▕▏piece▕ reads slowly      └► `finish` sends the rest, while the server does other work
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse

from ecoshare.serving.batch_worker import one_line

_FURTHEST_BEHIND_BYTES = 64 << 20
"""Most bytes of an answer that are kept for a client. A client that is further behind loses its connection."""

_PIECE_BYTES = 1 << 16

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
        data = answer.read1(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
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
