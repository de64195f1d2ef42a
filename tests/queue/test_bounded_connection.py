"""Connections that hang, on a real socket, with short times."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable

import pytest
import uvicorn
from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ecoshare.queue import http_server
from ecoshare.queue.http_server import BoundedConnection
from ecoshare.queue.routes import BodyLimit

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
CHUNK = b"x" * (1 << 16)
CHUNKS = 200


class Impatient(BoundedConnection):
    most = 4
    stalled_s = 0.5


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with more than the buffers of a socket hold, after it has read the body of the request."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": number < CHUNKS - 1})


@contextlib.asynccontextmanager
async def listening(served: ASGIApp) -> AsyncIterator[int]:
    """Context manager: the application is served; gives the port."""
    config = uvicorn.Config(served, http=Impatient, limit_concurrency=4, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server._serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


def played(served: ASGIApp, play: Callable[[int], None]) -> None:
    """Serve the application, and play a client in a thread."""

    async def both() -> None:
        async with listening(served) as port:
            await asyncio.to_thread(play, port)

    asyncio.run(both())


def read(client: socket.socket, pause_s: float = 0.0) -> int:
    """Number of bytes until the connection ends, which may be cut."""
    came = 0
    with contextlib.suppress(ConnectionResetError):
        while chunk := client.recv(1 << 16):
            came += len(chunk)
            time.sleep(pause_s)
    return came


def connected(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    return client


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_WITHIN_S", 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", REQUEST])
def test_a_client_without_a_whole_request_is_gone_soon(sent: bytes) -> None:
    def play(port: int) -> None:
        with connected(port) as client:
            client.sendall(sent)
            assert read(client) == 0

    played(app, play)


@pytest.mark.slow
def test_a_second_request_has_no_more_time_than_the_first() -> None:
    async def small(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    def play(port: int) -> None:
        with connected(port) as client:
            client.sendall(REQUEST + b"\r\n" + REQUEST + b"\r\n" + REQUEST)
            begin_s = time.monotonic()
            read(client)
            assert time.monotonic() - begin_s < 4, "less than uvicorn's keep-alive"

    played(small, play)


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_gone_and_one_that_reads_slowly_is_not() -> None:
    def play(port: int) -> None:
        with connected(port) as client:
            client.sendall(REQUEST + b"\r\n")
            time.sleep(2)
            assert read(client) < CHUNKS * len(CHUNK) / 2
        with connected(port) as client:
            client.sendall(REQUEST + b"\r\n")
            assert read(client, pause_s=0.01) > CHUNKS * len(CHUNK)

    played(app, play)


def test_too_many_connections_end_the_oldest_that_waits_and_no_busy_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_WITHIN_S", 60.0)  # no connection ends because of its time
    monkeypatch.setattr(Impatient, "stalled_s", 60.0)

    def play(port: int) -> None:
        with contextlib.ExitStack() as stack:
            busy = stack.enter_context(connected(port))
            busy.sendall(REQUEST + b"Connection: close\r\n\r\n")
            assert busy.recv(12) == b"HTTP/1.1 200"
            waiting = [stack.enter_context(connected(port)) for _ in range(20)]
            assert read(waiting[0]) == 0
            waiting[-1].sendall(REQUEST + b"Connection: close\r\n\r\n")
            assert read(waiting[-1]) > CHUNKS * len(CHUNK), "the newest was not served"
            assert read(busy) > CHUNKS * len(CHUNK), "an answer was cut"

    played(app, play)


@pytest.mark.nightly
def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    limited = FastAPI()
    limited.add_middleware(BodyLimit, most_bytes=100, within_s=0.5)

    @limited.post("/")
    async def take(request: Request) -> int:
        return len(await request.body())

    def play(port: int) -> None:
        for body, answer in ((b"x" * 10, b"408"), (b"x" * 50, b"200"), (b"x" * 200, b"413")):
            with connected(port) as client:
                length = 50 if len(body) <= 50 else len(body)
                client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length + body)
                assert client.recv(12).split()[1] == answer

    played(limited, play)
