"""Hostile requests to a queue, over its socket and over TCP: it refuses them, answers others, and does its work.

A round is a queue with a job that must complete, and a hundred requests: damaged bytes, hostile values in documents,
and connections that break off. No answer is an error of the server, and the queue prints nothing about them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.fuzz.commands import ended, environment, judge, nothing_left, queue_up, started, token_of
from scripts.fuzz.damage import VALUES, damage_bytes, damage_json, dumped
from scripts.fuzz.rounds import Lost, Play, Round, main

REQUESTS = 100
_ANSWERS_WITHIN_S = 20.0
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"

_SUBMISSION = {
    "id": "0" * 32,
    "text": "version: 1\njobs: [{name: x, script: /nowhere.py}]\n",
    "file": "jobs.yaml",
    "folder": "/",
    "environment": {"A": "b"},
}
_DOCUMENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/api/v1/jobs", _SUBMISSION),
    ("PATCH", "/api/v1/jobs/good", {"held": False, "priority": 3}),
    ("POST", "/api/v1/cancel", {"jobs": ["none"], "all": False, "at_once": False}),
    ("POST", "/api/v1/retry", {"jobs": ["none"]}),
)
"""Requests that change no good job, whatever becomes of one value: `all` is never true."""

_PATHS = (
    "/",
    "/metrics",
    "/api/v1/jobs?ended={}",
    "/api/v1/jobs/{}",
    "/api/v1/jobs/{}/output?from={}",
    "/page/{}",
    "/{}",
)


def prepare(folder: Path) -> Play:
    """Make the script of the good job."""
    script = folder / "good.py"
    script.write_text("import time\ntime.sleep(1.0)\nprint('done')\n")

    def play(one: Round) -> None:
        one.kind = f"{REQUESTS} requests"
        state = environment(ECOSHARE_STATE=str(one.folder / "state"))
        home = one.folder / "state" / "queues" / "default"
        with queue_up(state, "--policy", "fair", "--listen", "127.0.0.1:0") as process:
            judge(started("submit", script, "--name", "good", environment=state))
            said = process.stderr
            for _ in range(REQUESTS):
                _ask(one, home)
            if process.poll() is not None:
                raise Lost("the queue has ended", process.stderr[-800:])
            waited = started("wait", "good", environment=state)
            if waited.code or (home / "runs" / "latest" / "jobs" / "good" / "stdout.log").read_text() != "done\n":
                raise Lost("a good job has not completed", waited.stderr)
            new = [line for line in process.stderr.removeprefix(said).splitlines() if " s  " not in line]
            if new:
                raise Lost("the queue prints something about a request", "\n".join(new)[:6000])
            judge(started("down", "--yes", environment=state))
            judge(ended(process))
        nothing_left(token_of(home / "runs" / "latest"))

    return play


def _ask(one: Round, home: Path) -> None:
    """Send one request, perhaps a part of it, and read the answer."""
    over_tcp = one.dice.random() < 0.5
    data, how = _request(one, home, over_tcp)
    one.story[:] = [f"{'TCP' if over_tcp else 'socket'}: {how}: {data[:300]!r}"]
    with _connected(home, over_tcp) as client:
        client.settimeout(_ANSWERS_WITHIN_S)
        answer = b""
        with contextlib.suppress(OSError):  # the queue has refused it by now
            client.sendall(data)
            if one.dice.random() < 0.2:
                return  # the client is gone
            client.shutdown(socket.SHUT_WR)
            while b"\r\n\r\n" not in answer and (more := client.recv(1 << 16)):
                answer = (answer + more).removeprefix(_GO_ON)
    status = answer.split(b" ", 2)[1:2]
    if status and not status[0].startswith((b"2", b"3", b"4")):
        raise Lost("a request is answered with an error of the server", f"{data[:500]!r}\n{answer[:500]!r}")


def _connected(home: Path, over_tcp: bool) -> socket.socket:
    if over_tcp:
        host, _, port = (home / "address").read_text().removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), _ANSWERS_WITHIN_S)
    client = socket.socket(socket.AF_UNIX)
    folder = os.open(home, os.O_PATH)
    try:
        client.connect(f"/proc/self/fd/{folder}/socket")  # the path may be too long for an address
    finally:
        os.close(folder)
    return client


def _request(one: Round, home: Path, over_tcp: bool) -> tuple[bytes, str]:
    """Bytes of a request, and the damage in words."""
    dice = one.dice
    token = (home / "token").read_text() if over_tcp and dice.random() < 0.9 else "x"
    body, how = b"", "a hostile path"
    if dice.random() < 0.6:
        method, path, document = dice.choice(_DOCUMENTS)
        changed, how = damage_json(dice, document)
        if isinstance(changed, Mapping) and (changed.get("all") is True or "good" in str(changed)):
            changed = {}
        if isinstance(changed, dict) and changed.get("id") == _SUBMISSION["id"]:
            changed["id"] = f"{dice.getrandbits(128):032x}"
        body = dumped(changed).encode("utf-8", "surrogatepass")
    else:
        method = dice.choice(["GET", "GET", "HEAD", "POST", "PATCH", "OPTIONS", "DELETE", "TRACE", "X" * 50])
        path = dice.choice(_PATHS).format(*(_worded(dice.choice(VALUES)) for _ in range(2)))
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        dice.choice(
            ["Connection: close", "Expect: 100-continue", "Transfer-Encoding: chunked", "Origin: null", "A: b"]
        ),
    ]
    data = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body
    if dice.random() < 0.4:
        data, damage = damage_bytes(dice, data)
        how = f"{how}, {damage}"
    return data, how


def _worded(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:2000].replace("\r", "").replace("\n", "%0A")


if __name__ == "__main__":
    main("requests", __doc__, prepare)
