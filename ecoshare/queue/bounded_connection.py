"""Connections that hang, or are too many, cost a queue nothing.

::

    accepted ──► waits for a request ──► is answered ──► waits for the next ...
                   10 s at most;          TCP: 60 s at most in which
                   ended first if         the client reads nothing
                   there are too many
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ecoshare.common.clock import loop_s

REQUEST_WITHIN_S = 10.0
"""Time (s) within which the header of a request has come. Browsers connect early, and then wait."""


class BoundedConnection(H11Protocol):
    """HTTP connection that ends if no request comes.

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
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._since_s = loop_s()
        self._wait_for_request()
        if len(self.connections) >= self.most:
            others = cast("set[BoundedConnection]", self.connections) - {self}
            waiting = [each for each in others if not each._has_request and not each.transport.is_closing()]
            if waiting:  # otherwise uvicorn answers 503
                min(waiting, key=lambda each: each._since_s).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._stop_watching()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
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
        """See `asyncio.Protocol`."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
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
