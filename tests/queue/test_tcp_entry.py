"""A queue over TCP: the token, other sites, other users, clients that hang, and events."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.queue.tcp_entry import page_of
from tests.queue.queues import UP, Served
from tests.warm import ecoshare, wait_for

HANGING = 600
"""Connections that send half a header: more than a queue takes over TCP."""


@pytest.mark.slow
def test_up_and_page_print_the_address_with_the_token(up: Served) -> None:
    address, token = (up.home / "address").read_text(), (up.home / "token").read_text()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address) and len(token) >= 43
    assert f"note: the page is {address}/#token={token}\n" in up.process.stderr
    assert up.lines("page") == [f"{address}/#token={token}"] == [up.queue.page()]


def test_the_token_opens_the_interface_and_nothing_else_does(http: httpx.Client, bearer: dict[str, str]) -> None:
    assert http.get("/api/v1/jobs", headers=bearer).json()["name"] == "test"
    token = bearer["Authorization"].partition(" ")[2]
    wrong = ["", token, f"Bearer {token[:-1]}", f"Bearer {token}x", "Bearer \u00e9", f"Basic {token}", "Bearer"]
    paths = ("jobs", "openapi.json", "events", "jobs/a/output", "nothing")
    for path in ("/metrics", "/x", *(f"/api/v1/{name}" for name in paths)):
        assert http.get(path).status_code == 401
        for value in wrong:
            refused = http.get(path, headers=[(b"Authorization", value.encode("latin-1"))])
            assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer", (path, value)
    refused = http.get("/api/v1/jobs", headers=[("Authorization", "Bearer x"), *bearer.items()])
    assert refused.status_code == 401, "one of two tokens is not enough"
    assert http.get(f"/api/v1/jobs?token={token}").status_code == 401, "a token in a URL would be in logs"
    for path, method in (("/api/v1/jobs", "POST"), ("/api/v1/cancel", "POST"), ("/api/v1/end", "POST"), ("/", "POST")):
        assert http.request(method, path, json={"how": "now"}).status_code == 401
    assert http.options("/api/v1/jobs").status_code == 401, "no other site is told that it may ask"
    assert http.get("/api/v1/jobs", headers=bearer).status_code == 200, "wrong tokens lock the owner out"


@pytest.mark.slow
def test_other_sites_are_refused_whatever_they_know(http: httpx.Client, bearer: dict[str, str]) -> None:
    port = http.base_url.port
    for host, code in (
        ("evil.example", 421),
        (f"127.0.0.1.evil.example:{port}", 421),
        ("10.0.0.1", 421),
        ("[::1].evil.example", 421),
        (f"localhost:{port}.evil.example", 421),
        ("", 421),
        ("localhost:9999", 200),  # made by `ssh -L 9999:...`
        (f"LOCALHOST:{port}", 200),
        ("[::1]:1", 200),
    ):
        assert http.get("/api/v1/jobs", headers={**bearer, "Host": host}).status_code == code, host
        assert http.get("/", headers={"Host": host}).status_code == code, host
    for origin, code in (
        ("http://evil.example", 403),
        ("null", 403),
        (f"http://localhost:{port}", 403),  # the request is for 127.0.0.1
        (f"https://127.0.0.1:{port}", 403),
        (f"http://127.0.0.1:{port}", 422),
    ):
        answer = http.post("/api/v1/jobs", headers={**bearer, "Origin": origin}, json={})
        assert answer.status_code == code, origin
        assert not any(name.startswith("access-control") for name in answer.headers)
    form = http.post("/api/v1/end", headers={**bearer, "Content-Type": "text/plain"}, content='{"how": "now"}')
    assert form.status_code == 422, "what a form of another site can send is no request"


@pytest.mark.nightly
def test_a_refusal_is_read_by_a_client_that_is_still_sending(up: Served) -> None:
    """A connection that is closed with a part of the request unread is reset, and the answer may be lost."""
    host, port = (up.home / "address").read_text().removeprefix("http://").split(":")
    for number in range(100):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n".encode())
            time.sleep(number * 0.00005)  # in some tries the rest comes while the answer is on its way
            client.sendall(b"{}")
            answer = b""
            while part := client.recv(64):
                answer += part
        assert answer.startswith(b"HTTP/1.1 401 ") and answer.endswith(b"}")


def test_other_sites_are_refused_on_the_socket_too(up: Served) -> None:
    """`ssh -L 8265:.../socket` leads browsers to the socket, which asks for no token."""
    from ecoshare.queue.queue_folder import socket_address

    with (
        socket_address(up.home / "socket") as address,
        httpx.Client(transport=httpx.HTTPTransport(uds=address), base_url="http://queue", timeout=20.0) as http,
    ):
        assert http.get("/api/v1/jobs").status_code == http.get("/").status_code == 200
        assert http.get("/api/v1/jobs", headers={"Host": "evil.example"}).status_code == 421
        assert http.post("/api/v1/end", json={"how": "now"}, headers={"Origin": "http://evil"}).status_code == 403


@pytest.mark.slow
def test_answers_tell_browsers_to_be_careful(http: httpx.Client, bearer: dict[str, str]) -> None:
    answers = [http.get(path) for path in ("/", "/page/main.js", "/page/page.css")]
    for answer in [
        *answers,
        http.get("/api/v1/jobs", headers=bearer),
        http.get("/x"),
        http.get("/", headers={"Host": "x"}),
    ]:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ") and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
    assert [each.headers["content-type"].partition(";")[0] for each in answers] == [
        "text/html",
        "text/javascript",
        "text/css",
    ]
    assert http.get("/page/../token").status_code == http.get("/page/%2e%2e/token").status_code == 401
    assert http.get("/page/..%2f..%2ftoken", headers=bearer).status_code == 404


@pytest.mark.slow
def test_other_users_get_neither_token_nor_answer(up: Served) -> None:
    assert {stat.S_IMODE((up.home / name).stat().st_mode) for name in ("socket", "token", "address")} == {0o600}
    if os.geteuid() != 0:
        pytest.skip("another user can be played by root only")
    program = (
        "import encodings.idna, os, sys, socket\nos.setgid(65534); os.setuid(65534)\n"
        "def get():\n    client = socket.create_connection(('127.0.0.1', int(sys.argv[2])))\n"
        "    client.sendall(b'GET /api/v1/jobs HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "    print(client.recv(100).split()[1].decode())\n"
        "for what in (lambda: open(sys.argv[1] + '/token'), lambda: open(sys.argv[1] + '/address'), "
        "lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1] + '/socket'), "
        "):\n    try:\n        what()\n        print('in')\n    except OSError as error:\n        print(error.errno)\n"
        "get()\n"
    )
    for path in up.home.parents[1:3]:
        path.chmod(0o711)
    line = [
        sys.executable,
        "-c",
        program,
        os.path.relpath(up.home),
        (up.home / "address").read_text().rpartition(":")[2],
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["13", "13", "13", "401"]
    assert (up.home / "token").read_bytes() not in Path(f"/proc/{up.process.pid}/cmdline").read_bytes()


@pytest.mark.nightly
def test_clients_that_hang_take_no_place_from_others(up: Served, http: httpx.Client, bearer: dict[str, str]) -> None:
    """If it failed, any user of the machine could lock out the owner with some hundred connections."""
    host, port = http.base_url.host, http.base_url.port
    assert port is not None
    hanging = []
    try:
        for number in range(HANGING):
            client = socket.create_connection((host, port), timeout=10)
            client.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
            hanging.append(client)
            if number % 100 == 99:
                with httpx.Client(base_url=http.base_url, timeout=5.0) as other:
                    assert other.get("/api/v1/jobs", headers=bearer).status_code == 200
                assert up.queue.status(0).name == "test", "the socket has places of its own"
        assert _descriptors(up) < 400, "hanging connections keep descriptors from jobs"
        wait_for(lambda: _descriptors(up) < 100)
        assert hanging[-1].recv(1) == b"", "the last one was not ended in time"
    finally:
        for client in hanging:
            client.close()
    trickle = socket.create_connection((host, port), timeout=30)
    trickle.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n")
    assert b"401" in trickle.recv(100), "the body of a request without the token is not waited for"
    wait_for(lambda: trickle.recv(1 << 16) == b"")
    trickle.close()


REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%ff%00%2e%2e HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"HEAD /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nOrigin: \xff\r\n\r\n",
)


@pytest.mark.slow
def test_malformed_requests_leave_nothing_in_the_log(up: Served, http: httpx.Client, bearer: dict[str, str]) -> None:
    """If it failed, another user could fill the disk of the owner."""
    before = up.process.stderr
    chance = random.Random(7)
    for number in range(200):
        whole = chance.choice(REQUESTS)
        content = chance.randbytes(200) if number % 3 == 0 else whole[: chance.randrange(1, 2 * len(whole))]
        with socket.create_connection((http.base_url.host, http.base_url.port or 0), timeout=20) as client:
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(1 << 16):
                    pass
    assert http.get("/api/v1/jobs", headers=bearer).status_code == 200
    assert up.process.stderr == before


@pytest.mark.slow
def test_headers_have_an_end(http: httpx.Client) -> None:
    port = http.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * (1 << 17))
        assert client.recv(12) == b"HTTP/1.1 400"


def _descriptors(up: Served) -> int:
    return len(list(Path(f"/proc/{up.process.pid}/fd").iterdir()))


@pytest.mark.slow
def test_a_port_in_use_is_told_in_one_line_before_anything_begins(up: Served) -> None:
    address = (up.home / "address").read_text().removeprefix("http://")
    for options in ((), ("--detach",)):
        done = ecoshare("up", "--name", "second", "--listen", address, "--device", "cpu", *options, cwd=up.folder)
        assert done.returncode == 4, done.stderr
        assert f"error: --listen {address}: Address already in use" in done.stderr and "Traceback" not in done.stderr
    assert not (up.folder / "state/queues/second/runs").exists() and not QueueFolder.of("second").token.exists()


@pytest.mark.cold
@pytest.mark.slow
def test_a_queue_in_the_background_tells_its_page(up: Served) -> None:
    name = "behind"
    done = ecoshare("up", "--name", name, *UP, "--share-device", "--listen", "127.0.0.1:0", "--detach", cwd=up.folder)
    assert done.returncode == 0, done.stderr
    try:
        folder = QueueFolder.of(name)
        assert done.stdout.splitlines()[1] == f"its page is {page_of(folder)}"
        assert stat.S_IMODE(folder.log.stat().st_mode) == 0o600, "other users can read the token"
        again = ecoshare("page", "--queue", name, cwd=up.folder)
        assert again.stdout == f"{page_of(folder)}\n"
    finally:
        assert ecoshare("down", "--queue", name, "--now", cwd=up.folder).returncode == 0


@pytest.mark.nightly
def test_a_unit_listens_too(up: Served) -> None:
    done = ecoshare("up", "--listen", "127.0.0.1:8265", "--print-unit", cwd=up.folder)
    assert "up --listen 127.0.0.1:8265 --resume" in done.stdout.replace("--queue default ", "")
    bad = ecoshare("up", "--listen", "0.0.0.0:8265", "--print-unit", cwd=up.folder)
    assert bad.returncode == 2 and "loopback addresses only" in bad.stderr and "ssh -L 8265:" in bad.stderr
    in_lab = {**os.environ, "ECOSHARE_QUEUE": "lab"}
    done = ecoshare("up", "--name", "default", "--print-unit", cwd=up.folder, environment=in_lab)
    assert "up --queue default --resume" in done.stdout, "the environment would name another one in the background"
    done = ecoshare("up", "--profiles", "/a b/50%$x", "--print-unit", cwd=up.folder)
    assert "--profiles '/a b/50%%$$x'" in done.stdout and "-m ecoshare down --queue default\n" in done.stdout
    assert f"\nEnvironment=ECOSHARE_STATE={os.environ['ECOSHARE_STATE']}\n" in done.stdout
    bad = ecoshare("up", "--profiles", "/a\nExecStartPre=/bin/x", "--print-unit", cwd=up.folder)
    assert bad.returncode == 2 and bad.stderr.startswith(r"error: '/a\nExecStartPre=/bin/x' cannot stand in a unit")
    bad = ecoshare("up", "--keep", "30", "--print-unit", cwd=up.folder)
    assert bad.returncode == 2 and "--keep: expected an age with its unit" in bad.stderr
