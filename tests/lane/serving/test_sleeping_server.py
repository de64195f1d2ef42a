"""A server that sleeps, with the turn of a test in place of a lane's."""

from __future__ import annotations

import errno
import http.client
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

import pytest

from ecoshare.lane.serving import front, request_intervals
from ecoshare.lane.serving import sleeping_server as sleeping
from ecoshare.lane.serving.front import Front
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.serving.sleeping_server import SleepingServer
from tests.warm import wait_for

MOST_CONNECTIONS = 8

LONG_S = 20.0


class Turn:
    """Turn that the test gives and wants back. It tells what happened to it."""

    def __init__(self) -> None:
        self.free, self.is_due = threading.Semaphore(1), False
        self.is_held = False
        self.takes: list[tuple[float, float]] = []
        self.answers = 0

    def take(self, due_s: float, answer_s: float) -> None:
        self.takes.append((due_s, answer_s))
        self.free.acquire()
        self.is_held = True

    def answered(self) -> None:
        assert self.is_held
        self.answers += 1

    def leave(self) -> None:
        self.is_held, self.is_due = False, False
        self.free.release()


class Scheduler(ThreadingHTTPServer):
    """Server that sleeps and wakes, and notes what reaches it asleep."""

    daemon_threads = True

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.faults: list[str] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers = 200  # status of /sleep and /wake
        self.slow_s = 0.0
        self.is_asleep = False
        self.computing = set[object]()
        self.go_on = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Scheduler
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server, body = self.server, self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path in ("/sleep?level=1", "/wake"):
            server.calls.append(self.path)
            time.sleep(server.slow_s)
            if server.computing:
                server.faults.append(f"{self.path} while it computes")
            if server.answers == 200:
                server.is_asleep = self.path != "/wake"
            self.respond(server.answers)
            return
        if server.is_asleep:
            server.faults.append(f"{self.path} while it sleeps")
        server.asked.append((self.command, self.path, dict(self.headers.items()), body))
        server.computing.add(self)
        try:
            self.answer(body)
        finally:
            self.over()

    do_GET = do_HEAD = do_POST

    def over(self) -> None:
        """Note that no more is computed. The front may know of the last byte before this thread goes on."""
        self.server.computing.discard(self)

    def answer(self, body: bytes) -> None:
        server = self.server
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nfirst\r\n")
            assert server.go_on.wait(LONG_S)
            self.over()
            self.wfile.write(b"4\r\nlast\r\n0\r\n\r\n")
        elif self.path == "/waits":
            assert server.go_on.wait(LONG_S)
            self.respond(200, b"waited")
        elif self.path == "/large":
            self.respond(200, b"x" * 40_000_000)
        elif self.path == "/breaks":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.over()
            self.wfile.write(b"half")
            self.close_connection = True
        elif self.path == "/fails":
            self.respond(500, b"no memory")
        else:
            self.respond(200, body)

    def respond(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        rest = body if self.command != "HEAD" else b""
        if not rest:
            self.over()
        self.end_headers()
        self.wfile.write(rest[:-1])
        self.over()
        self.wfile.write(rest[-1:])

    def log_message(self, *_: object) -> None:
        pass


class Fixture:
    """Client, front, server and turn."""

    def __init__(self, folder: Path, within_s: float) -> None:
        self.turn, self.scheduler = Turn(), Scheduler()
        self.said: list[str] = []
        self.given_up: list[str] = []
        self.is_started = False
        self.path = folder / "requests.jsonl"
        self.front = Front(0, 5.0, RequestRecorder(self.path))
        origin = self.scheduler.origin
        self.server = SleepingServer(
            self.turn,
            f"{origin}/sleep?level=1",
            f"{origin}/wake",
            self.said.append,
            self.given_up.append,
            self.front.write,
            within_s,
        )
        self.front.start(self.server)

    def start(self) -> None:
        self.is_started = True
        threading.Thread(target=self.scheduler.serve_forever, args=(0.01,), daemon=True).start()
        self.keeper = threading.Thread(target=self.server.keep, daemon=True)
        self.keeper.start()
        wait_for(lambda: self.turn.is_held)

    @contextmanager
    def asking(self, path: str, body: bytes | None = b"", method: str = "POST") -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.front.port, timeout=LONG_S)
        try:
            connection.request(method, path, body)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, path: str = "/echo", body: bytes = b"hello", method: str = "POST") -> tuple[int, bytes]:
        with self.asking(path, body, method) as answer:
            return answer.status, answer.read()

    def later(self, path: str) -> threading.Thread:
        thread = threading.Thread(target=self.ask, args=(path,))
        thread.start()
        return thread

    def sleeps(self) -> None:
        """Another job wants the turn, and gets it: until `wakes` the server must sleep."""
        self.turn.is_due = True
        wait_for(lambda: not self.turn.is_held)
        assert self.turn.free.acquire(timeout=LONG_S)

    def wakes(self) -> None:
        self.turn.free.release()

    def count(self, name: str) -> int:
        """Number of requests in the record, which follows the last byte of an answer."""
        self.front.write(True)
        return sum(getattr(each, name) for each in request_intervals.read(self.path))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fixture]:
    monkeypatch.setattr(sleeping, "_BETWEEN_TRIES_S", 0.01)
    monkeypatch.setattr(sleeping, "_LOOK_S", 0.01)
    monkeypatch.setattr(front, "_MOST_CONNECTIONS", MOST_CONNECTIONS)
    made = Fixture(tmp_path, 0.5)
    yield made
    made.scheduler.go_on.set()
    if made.is_started:
        made.scheduler.shutdown()
    made.scheduler.server_close()
    assert made.scheduler.faults == []


@pytest.fixture
def started(made: Fixture) -> Fixture:
    made.start()
    return made


def test_the_server_stays_awake_until_another_job_wants_the_turn(started: Fixture) -> None:
    assert started.turn.takes == [(math.inf, 0.0)], "the server is awake once it listens, and so has the turn"
    assert started.ask() == (200, b"hello") and started.ask() == (200, b"hello")
    assert started.turn.is_held and started.scheduler.calls == []
    started.sleeps()
    assert started.scheduler.calls == ["/sleep?level=1"] and started.scheduler.is_asleep


def test_a_request_waits_for_the_turn_and_wakes_the_server(started: Fixture) -> None:
    started.sleeps()
    before_s = time.monotonic()
    thread = started.later("/echo")
    wait_for(lambda: len(started.turn.takes) == 2)
    assert before_s + 4.9 < started.turn.takes[1][0] < time.monotonic() + 5.0, "it is due at its arrival and the target"
    assert started.scheduler.calls[1:] == [], "other jobs have the turn"
    started.wakes()
    thread.join(LONG_S)
    assert started.scheduler.calls == ["/sleep?level=1", "/wake"]
    started.sleeps()
    assert (started.turn.answers, started.count("answered")) == (1, 1)


def test_the_gate_is_closed_while_another_job_must_have_the_turn(started: Fixture) -> None:
    """If it failed, requests that never stop would keep the turn for ever."""
    inside = started.later("/waits")
    wait_for(lambda: len(started.scheduler.computing) == 1)
    started.turn.is_due = True
    time.sleep(0.05)  # several looks
    outside = started.later("/echo")
    time.sleep(0.05)
    assert started.turn.is_held and len(started.scheduler.asked) == 1, "a request inside is answered to its end"
    started.scheduler.go_on.set()
    inside.join(LONG_S)
    outside.join(LONG_S)
    assert started.scheduler.calls == ["/sleep?level=1", "/wake"] and len(started.scheduler.asked) == 2
    assert math.isfinite(started.turn.takes[1][0])


@pytest.mark.nightly
def test_a_turn_is_not_shorter_than_the_calls_around_it(started: Fixture) -> None:
    """If it failed, a client that asks again at once would pay for a sleep and a wake with each request."""
    started.scheduler.slow_s = 0.15
    started.sleeps()
    thread = started.later("/echo")
    started.wakes()
    thread.join(LONG_S)
    started.turn.is_due = True
    for _ in range(3):
        assert started.ask() == (200, b"hello")
    assert len(started.scheduler.calls) == 2
    wait_for(lambda: not started.turn.is_held)


def test_bytes_come_as_the_server_sends_them(started: Fixture) -> None:
    with started.asking("/stream") as answer:
        assert answer.read1(100) == b"first"
        started.scheduler.go_on.set()
        assert answer.read() == b"last"
        assert answer.headers["Transfer-Encoding"] == "chunked"


def test_methods_headers_and_bodies_are_passed_on(started: Fixture) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    connection = http.client.HTTPConnection("127.0.0.1", started.front.port, timeout=LONG_S)
    connection.request("POST", "/echo?x=%20y", chunks(), {"X-Own": "1", "Connection": "X-Hop", "X-Hop": "2"})
    answer = connection.getresponse()
    assert (answer.read(), answer.headers.get_all("Set-Cookie")) == (b"onetwo", ["a=1", "b=2"])
    connection.request("HEAD", "/echo")
    answer = connection.getresponse()
    assert (answer.status, answer.read(), answer.headers["Content-Length"]) == (200, b"", "0")
    connection.close()
    (method, path, headers, body), head = started.scheduler.asked
    assert (method, path, body) == ("POST", "/echo?x=%20y", b"onetwo") and head[0] == "HEAD"
    assert headers["X-Own"] == "1" and headers["Content-Length"] == "6" and "X-Hop" not in headers
    assert headers["Host"] == f"127.0.0.1:{started.front.port}"


def test_an_old_client_gets_no_chunks(started: Fixture) -> None:
    started.scheduler.go_on.set()
    with socket.create_connection(("127.0.0.1", started.front.port), LONG_S) as own:
        own.sendall(b"POST /stream HTTP/1.0\r\n\r\n")
        head, _, body = own.makefile("rb").read().partition(b"\r\n\r\n")
    assert body == b"firstlast" and b"chunked" not in head and b"Connection: close" in head


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("GET nowhere HTTP/1.1", 400),
        ("POST / HTTP/1.1\r\nContent-Length: x", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999999", 413),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip", 501),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1", 400),
        ("BREW / HTTP/1.1", 501),
        ("POST /%73leep HTTP/1.1\r\nConnection: close", 403),
    ],
)
def test_requests_that_are_not_passed_on(started: Fixture, lines: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", started.front.port), LONG_S) as own:
        own.sendall(f"{lines}\r\n\r\n".encode())
        answer = own.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 %d " % status) and b"Content-Type: text/plain" in answer
    assert started.scheduler.asked == [] and started.count("arrived") == 0


def test_a_server_that_does_not_listen_yet(made: Fixture) -> None:
    made.scheduler.socket.close()  # a port at which nothing listens
    made.keeper = threading.Thread(target=made.server.keep, daemon=True)
    made.keeper.start()
    with made.asking("/echo") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert answer.read() == b"the server does not listen yet\n"
    assert made.turn.takes == [] and made.count("arrived") == 0


def test_a_server_that_does_not_wake(started: Fixture) -> None:
    """If it failed, a request would reach a server that sleeps, or all requests behind it would wait for ever."""
    started.sleeps()
    started.scheduler.answers = 500
    started.wakes()
    status, text = started.ask()
    assert status == 502 and text.startswith(b"the server does not wake: POST http://127.0.0.1:")
    assert text.endswith(b"/wake: 500 Internal Server Error\n") and len(started.said) == 1
    started.scheduler.answers = 200
    assert started.ask() == (200, b"hello"), "it is woken again"
    assert started.scheduler.calls[1:] == ["/wake", "/wake"]
    wait_for(lambda: (started.count("failed"), started.count("answered")) == (1, 1))


def test_a_call_that_takes_too_long(started: Fixture) -> None:
    started.sleeps()
    started.scheduler.slow_s = 1.5
    started.wakes()
    status, text = started.ask()
    assert status == 502 and text.endswith(b"/wake: no answer within 0.5 s\n")
    started.scheduler.slow_s = 0.0


def test_a_server_that_does_not_sleep_is_given_up_and_the_turn_is_not_left(started: Fixture) -> None:
    """If it failed, another job would run beside a server that has its memory, or wait for it for ever."""
    started.scheduler.answers = 404
    started.turn.is_due = True
    started.keeper.join(LONG_S)
    [why] = started.given_up
    assert why.startswith("the server does not sleep: POST http://") and why.endswith("level=1: 404 Not Found")
    assert len(started.said) == 2 and started.turn.is_held


def test_answers_that_fail(started: Fixture) -> None:
    assert started.ask("/fails") == (500, b"no memory")
    with pytest.raises(http.client.IncompleteRead):
        started.ask("/breaks")
    started.scheduler.shutdown()
    started.scheduler.socket.close()
    status, text = started.ask()
    assert (status, text.startswith(b"the server gives no answer: Connection")) == (502, True)
    wait_for(lambda: started.count("failed") == 3)


def test_a_client_that_goes_frees_the_turn(started: Fixture) -> None:
    with socket.create_connection(("127.0.0.1", started.front.port), LONG_S) as own:
        own.sendall(b"POST /waits HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        wait_for(lambda: len(started.scheduler.computing) == 1)
    wait_for(lambda: started.turn.answers == 1)
    assert started.count("cancelled") == 1
    started.scheduler.go_on.set()
    wait_for(lambda: not started.scheduler.computing)


def test_a_client_that_never_reads_holds_up_no_other(started: Fixture) -> None:
    with socket.create_connection(("127.0.0.1", started.front.port), LONG_S) as own:
        own.sendall(b"POST /large HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        wait_for(lambda: started.turn.answers == 1)
        assert started.ask() == (200, b"hello")
        started.sleeps()
        assert started.count("answered") == 2
        started.wakes()
        received = own.makefile("rb").read(40_000_000)
    assert received.endswith(b"x"), "the client gets the rest when it reads"


def test_a_client_that_sends_slowly_is_not_let_in(started: Fixture) -> None:
    with socket.create_connection(("127.0.0.1", started.front.port), LONG_S) as own:
        own.sendall(b"POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        time.sleep(0.05)
        started.sleeps()


def test_slow_clients_beyond_the_bound_are_refused_and_others_find_room_again(started: Fixture) -> None:
    address = ("127.0.0.1", started.front.port)
    with ExitStack() as slow:
        for _ in range(MOST_CONNECTIONS):
            slow.enter_context(socket.create_connection(address, LONG_S)).sendall(b"POST /echo HTTP/1.1\r\n")
        for _ in range(3):
            with socket.create_connection(address, LONG_S) as refused:
                answer = refused.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answer

    def answers() -> bool:
        with suppress(ConnectionError, http.client.HTTPException):
            return started.ask() == (200, b"hello")
        return False

    wait_for(answers)


def test_without_descriptors_the_front_waits_before_it_tries_again(
    started: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `accept` would fail in a loop, and take a processor."""
    accept, pause, pauses, failures = TCPServer.get_request, time.sleep, list[float](), [errno.EMFILE, errno.ENFILE]

    def get_request(self: TCPServer) -> Any:
        if failures and isinstance(self, front._Listener):
            raise OSError(failures.pop(), "too many open files")
        return accept(self)

    def sleep(time_s: float) -> None:
        pauses.extend([time_s] * (time_s == front._PAUSE_S))
        pause(time_s)

    monkeypatch.setattr(front, "_PAUSE_S", 0.0123)
    monkeypatch.setattr(TCPServer, "get_request", get_request)
    monkeypatch.setattr(time, "sleep", sleep)
    assert started.ask() == (200, b"hello")
    assert len(pauses) == 2


def test_a_port_in_use(tmp_path: Path, started: Fixture) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        Front(started.front.port, 1.0, RequestRecorder(tmp_path / "other"))
