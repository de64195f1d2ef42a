"""Events of a queue: as they come, after a connection was lost, and for clients that do not read."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi.sse import ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from ecoshare.errors import UnfitEnvironment
from ecoshare.queue.routes import GoneClients, application
from tests.queue.queues import Served
from tests.warm import wait_for

FILLED = 7
"""Number of states after which the buffers of a client that reads nothing are full."""


class Events:
    """Events of a stream, in the order in which they came."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()

    def until(self, kind: str, /, **content: object) -> tuple[str, dict[str, object]]:
        """Id and content of the first event of this kind that has this content."""
        event: dict[str, str] = {}
        for line in self._lines:
            if line:
                field, _, value = line.partition(": ")
                event[field] = value
                continue
            if event.get("event") == kind:
                found = json.loads(event["data"])
                if content.items() <= found.items():
                    return event.get("id", ""), found
            event = {}
        raise AssertionError("the stream has ended")


@pytest.mark.slow
def test_events_tell_each_change_and_a_client_that_comes_back_misses_none(
    up: Served, http: httpx.Client, bearer: dict[str, str]
) -> None:
    with http.stream("GET", "/api/v1/events", headers=bearer) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = Events(answer)
        _, first = events.until("status")
        assert first["name"] == "test" and first["jobs"] == []
        go = up.waits("told")
        last, job = events.until("job", name="told", state="running")
        assert job["attempts"] == 1
        _, status = events.until("status")
        jobs = status["jobs"]
        assert isinstance(jobs, list) and jobs[0]["name"] == "told"
    go.touch()
    assert up.ask("wait", "told").returncode == 0
    up.waits("later")
    with http.stream("GET", "/api/v1/events", headers={**bearer, "Last-Event-ID": last}) as answer:
        events = Events(answer)
        second, _ = events.until("job", name="told", state="completed")
        assert int(second.rpartition("-")[2]) > int(last.rpartition("-")[2])
        events.until("job", name="later")
    with http.stream("GET", "/api/v1/events", headers={**bearer, "Last-Event-ID": "other-7"}) as answer:
        Events(answer).until("job", name="told", state="completed")
    up.ask("cancel", "later", "--now")


@pytest.mark.nightly
def test_slow_streams_cost_neither_memory_nor_others(up: Served, http: httpx.Client, bearer: dict[str, str]) -> None:
    host, port = http.base_url.host, http.base_url.port
    assert port is not None
    go = up.waits("blocks")
    jobs = "".join(f"  - {{name: waiting-{number}, script: waits.py, after: [blocks]}}\n" for number in range(300))
    (up.folder / "many.yaml").write_text(f"version: 1\njobs:\n{jobs}")
    up.lines("submit", "many.yaml")
    request = f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {bearer['Authorization']}\r\n\r\n"
    slow = []
    try:
        for _ in range(32):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect((host, port))
            client.sendall(request.encode())
            slow.append(client)
        for client in slow:
            assert client.recv(12) == b"HTTP/1.1 200"  # and then it reads no more
        refused = http.get("/api/v1/events", headers=bearer)
        assert refused.status_code == 503 and "32 clients follow the queue already" in refused.json()["message"]
        for _ in range(2):
            slow.pop().close()
        wait_for(lambda: _follows(http, bearer))
        with http.stream("GET", "/api/v1/events", headers=bearer) as answer:
            events = Events(answer)
            for _ in range(FILLED):
                events.until("status")
            before = _memory_bytes(up)
            for _ in range(FILLED):
                _, status = events.until("status")
        size = len(json.dumps(status))
        assert size > 100_000, "the states are too small to fill the buffers"
        assert _memory_bytes(up) - before < FILLED * len(slow) * size / 3, "states are kept for those that read none"
    finally:
        for client in slow:
            client.close()
    wait_for(lambda: _follows(http, bearer))
    go.touch()


def _memory_bytes(up: Served) -> int:
    lines = Path(f"/proc/{up.process.pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _follows(http: httpx.Client, bearer: dict[str, str]) -> bool:
    with http.stream("GET", "/api/v1/events", headers=bearer) as answer:
        return answer.status_code == 200


@pytest.mark.slow
def test_events_are_described(http: httpx.Client, bearer: dict[str, str]) -> None:
    described = http.get("/api/v1/openapi.json", headers=bearer).json()
    assert "text/event-stream" in described["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"]
    assert "/" not in described["paths"]


@pytest.mark.nightly
def test_a_stream_ends_with_the_queue_and_its_token_goes(
    up: Served, http: httpx.Client, bearer: dict[str, str]
) -> None:
    """The last test of the module."""
    with http.stream("GET", "/api/v1/events", headers=bearer) as answer:
        chunks = answer.iter_bytes()
        first = next(chunks)
        begin_s = time.monotonic()
        assert up.ask("down", "--now").returncode == 0
        assert (first + b"".join(chunks)).endswith(b"\n\n"), "the stream was cut"
        assert time.monotonic() - begin_s < 20
    assert up.process.wait(20) == 0, up.process.stderr
    assert not (up.home / "token").exists() and not (up.home / "address").exists()
    with pytest.raises(UnfitEnvironment, match="is not up"):
        up.queue.page()


class _Endless:
    """Feed with one event after the other."""

    async def place(self) -> AsyncIterator[None]:
        yield

    async def events(self, _last: str | None) -> AsyncIterator[ServerSentEvent]:
        while True:
            yield ServerSentEvent(event="status", raw_data="{}")


def test_a_client_that_reads_nothing_and_goes_is_no_error() -> None:
    """FastAPI raises then, and the log of the queue would have a traceback for each page that is closed."""
    node = SimpleNamespace(knobs={})
    nowhere = SimpleNamespace(run=SimpleNamespace(node=node))
    app = application(cast(Any, nowhere), cast(Any, _Endless()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "GET",
        "path": "/api/v1/events",
        "query_string": b"",
        "headers": [],
    }

    async def follow() -> None:
        gone, asked = asyncio.Event(), iter([{"type": "http.request"}])

        async def receive() -> Message:
            if (request := next(asked, None)) is None:
                await gone.wait()
            return request or {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.sleep(0.05)  # the events fill the channel meanwhile
                gone.set()
                await asyncio.Event().wait()

        await app(scope, receive, send)

    asyncio.run(follow())


def test_other_errors_of_a_stream_are_told() -> None:
    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("a defect")

    nothing = cast(Any, None)
    with pytest.raises(ValueError, match="a defect"):
        asyncio.run(GoneClients(fails)({}, nothing, nothing))
