"""A service as an ASGI application, without a framework: HTTP POST on any path is a request.

::

    POST   200 the answer    400 the body cannot be decoded    413 the body is too long
           500 the handler failed for this request             503 the queue is full: try again later
    GET    200 "ok", as long as the service takes requests; else 503

A client holds no thread and no place that others need. If it disconnects while it waits, its request leaves the queue.
The interface: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from typing import Any

from ecoshare.lane.serving.batch_worker import one_line
from ecoshare.lane.serving.request_queue import QueueFull, ServiceClosed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

LARGEST_BODY_BYTES = 64 << 20
"""Largest body (bytes) of a request, unless the program says otherwise."""

_RETRY_AFTER_S = 1
"""Time (s) after which a refused client may try again: the least that HTTP can say, and longer than a full queue."""


def application(
    submit: Callable[[Any], Future[Any]],
    is_open: Callable[[], bool],
    decode: Callable[[bytes], Any] = json.loads,
    encode: Callable[[Any], bytes | str] = json.dumps,
    content_type: str = "application/json",
    largest_body_bytes: int = LARGEST_BODY_BYTES,
) -> Application:
    """Application that submits the body of each POST and sends its answer.

    Args:
        submit: Function that takes a request and returns the future of its answer.
        is_open: Function that returns whether the service takes requests.
        decode: Function from a body to a request. It runs in the event loop, and so must be quick.
        encode: Function from an answer to a body, in the event loop, too.
        content_type: Type of the answers.
        largest_body_bytes: Largest body (bytes) of a request.
    """

    async def answer(receive: Receive, send: Send) -> None:
        try:
            body = await _body(receive, largest_body_bytes)
        except _TooLong:
            await _text(send, 413, f"the body has more than {largest_body_bytes} bytes")
            return
        if body is None:
            return
        try:
            request = decode(body)
        except Exception as error:
            await _text(send, 400, f"the request cannot be decoded: {one_line(error)}")
            return
        try:
            future = submit(request)
        except (QueueFull, ServiceClosed) as error:
            await _text(send, 503, str(error))
            return
        if not await _is_answered(future, receive):
            return
        try:
            result = future.result()
        except ServiceClosed as error:
            await _text(send, 503, str(error))
            return
        except Exception as error:
            await _text(send, 500, one_line(error))
            return
        try:
            encoded = encode(result)
            content = encoded.encode() if isinstance(encoded, str) else bytes(encoded)
        except Exception as error:
            await _text(send, 500, f"the answer cannot be encoded: {one_line(error)}")
            return
        await _respond(send, 200, content, content_type)

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] != "http":
            raise ValueError(f"the application of a service takes HTTP, not {scope['type']!r}")
        elif scope["method"] == "POST":
            await answer(receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await _text(send, 405, "send POST for an answer, or GET to ask whether the service takes requests")
        elif is_open():
            await _text(send, 200, "ok")
        else:
            await _text(send, 503, "the service is closed")

    return app


class _TooLong(Exception):
    """A body is longer than allowed."""


async def _body(receive: Receive, largest_bytes: int) -> bytes | None:
    """Body of a request; None if the client has gone.

    Raises:
        _TooLong: The body is longer than allowed.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > largest_bytes:
            raise _TooLong
        if not message.get("more_body", False):
            return bytes(body)


async def _is_answered(future: Future[Any], receive: Receive) -> bool:
    """Wait for the answer. Return False if the client goes first: then its request leaves the queue."""
    answered = asyncio.wrap_future(future)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({answered, gone}, return_when=asyncio.FIRST_COMPLETED)
        return answered.done()
    finally:
        gone.cancel()
        if not answered.done():
            answered.cancel()  # and the future behind it, unless its batch is in the handler
        elif not answered.cancelled():
            answered.exception()  # mark it as seen: the caller reads the future itself


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """Answer the events of the server's life. The service lives on: another server may use it, too."""
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


async def _text(send: Send, status: int, text: str) -> None:
    await _respond(send, status, f"{text}\n".encode() if status != 200 else text.encode(), "text/plain; charset=utf-8")


async def _respond(send: Send, status: int, content: bytes, content_type: str) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(content))]
    if status == 503:
        headers.append((b"retry-after", b"%d" % _RETRY_AFTER_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
