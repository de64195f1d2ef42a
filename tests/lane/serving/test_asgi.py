from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import ecoshare
from tests.warm import wait_for

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
LONG_S = 20.0


class Gate:
    """Handler that doubles numbers. It keeps a batch with a negative number until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.seen: list[Any] = []

    def __call__(self, requests: list[Any]) -> list[Any]:
        self.seen += requests
        if any(isinstance(each, int) and each < 0 for each in requests):
            self.entered.set()
            assert self.opened.wait(LONG_S)
        if "bad" in requests:
            raise LookupError("no such\nthing")
        return [2 * each if each != "large" else "x" * 6_000_000 for each in requests]


@contextlib.contextmanager
def over_http(app: Any) -> Iterator[int]:
    """Port of a real uvicorn on the loopback interface."""
    config = uvicorn.Config(app, log_level="warning", lifespan="on", ws="none", http="h11", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    # With the protocol named, asyncio sets TCP_NODELAY on connections. Else each answer takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(LONG_S)
    assert not thread.is_alive()


@contextlib.contextmanager
def served(
    make: Callable[[ecoshare.Server], Any] | None = None, **options: Any
) -> Iterator[tuple[Gate, httpx.Client, ecoshare.Server]]:
    gate = Gate()
    with ecoshare.serve(gate, p99="10 s", **options) as server:
        app = make(server) if make else server.app()
        with over_http(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG_S) as client:
            try:
                yield gate, client, server
            finally:
                gate.opened.set()


def port_of(client: httpx.Client) -> int:
    assert client.base_url.port is not None
    return client.base_url.port


def test_each_status_says_what_became_of_the_request() -> None:
    with served() as (_, client, _):
        answer = client.post("/any/path", json=21)
        assert (answer.status_code, answer.json()) == (200, 42)
        assert answer.headers["content-type"] == "application/json"
        assert (client.get("/health").status_code, client.get("/health").text) == (200, "ok")
        wrong = client.post("/", content=b"{")
        assert wrong.status_code == 400
        assert wrong.text.startswith("the request cannot be decoded: JSONDecodeError: ")
        failed = client.post("/", json="bad")
        assert (failed.status_code, failed.text) == (500, "LookupError: no such\n")
        assert client.put("/", json=1).status_code == 405
        assert client.head("/").status_code == 200
        assert client.post("/", json=[1]).json() == [1, 1], "the service lives on"


def test_a_full_queue_is_503_with_the_time_to_try_again() -> None:
    with served(queue=1) as (gate, client, server):
        server.submit(-1)
        assert gate.entered.wait(LONG_S)
        waiting = server.submit(2)
        refused = client.post("/", json=3)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.text == "the queue is full: 1 requests wait\n"
        gate.opened.set()
        assert waiting.result(LONG_S) == 4
        assert client.post("/", json=3).json() == 6


def test_a_client_that_disconnects_gives_its_place_free() -> None:
    with served(queue=1) as (gate, client, server):
        server.submit(-1)
        assert gate.entered.wait(LONG_S)
        with socket.create_connection(("127.0.0.1", port_of(client))) as gone:
            gone.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n5")
            wait_for(lambda: server._queue.waiting() is not None)
            assert client.post("/", json=6).status_code == 503
        wait_for(lambda: server._queue.waiting() is None)
        waiting = server.submit(7)
        gate.opened.set()
        assert waiting.result(LONG_S) == 14
    assert gate.seen == [-1, 7]


def test_a_client_that_never_reads_holds_up_no_other() -> None:
    with served() as (_, client, _):
        port = port_of(client)
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(b'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n"large"')
            half = socket.create_connection(("127.0.0.1", port))
            half.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
            for number in range(20):
                assert client.post("/", json=number).json() == 2 * number
            half.close()


def test_a_body_that_is_too_long_is_refused_before_it_is_read() -> None:
    from ecoshare.lane.serving.asgi import application

    def make(server: ecoshare.Server) -> Any:
        return application(server.submit, lambda: True, largest_body_bytes=1000)

    with served(make) as (gate, client, _):
        assert client.post("/", json="x" * 2000).status_code == 413
        assert client.post("/", json="x" * 500).status_code == 200
    assert len(gate.seen) == 1


def test_bodies_may_have_another_form() -> None:
    def make(server: ecoshare.Server) -> Any:
        return server.app(decode=int, encode=str, content_type="text/plain")

    with served(make) as (_, client, _):
        answer = client.post("/", content=b"4")
        assert (answer.text, answer.headers["content-type"]) == ("8", "text/plain")
    with served(lambda server: server.app(encode=lambda answer: json.dumps({answer}))) as (_, client, _):
        answer = client.post("/", json=1)
        assert answer.status_code == 500
        assert answer.text.startswith("the answer cannot be encoded: TypeError: ")


def test_a_closed_server_says_so() -> None:
    servers: list[ecoshare.Server] = []

    def make(server: ecoshare.Server) -> Any:
        servers.append(server)
        return server.app()

    with served(make) as (_, client, _):
        servers[0].close()
        assert client.get("/").status_code == 503
        assert client.post("/", json=1).status_code == 503


def test_it_can_be_mounted_in_starlette() -> None:
    pytest.importorskip("starlette", reason="starlette is not installed")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    def make(server: ecoshare.Server) -> Any:
        async def ask(request: Any) -> Any:
            return PlainTextResponse(str(await server.answer(await request.json(), within_s=5.0)))

        return Starlette(routes=[Route("/ask", ask, methods=["POST"]), Mount("/double", app=server.app())])

    with served(make, batch=(1, 2, 4)) as (_, client, _):
        assert client.post("/double/", json=3).json() == 6
        assert client.post("/ask", json=4).text == "8"
        assert client.get("/double/health").text == "ok"
        before_s = time.monotonic()
        threads = [threading.Thread(target=lambda: client.post("/double/", json=1)) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert time.monotonic() - before_s < LONG_S
