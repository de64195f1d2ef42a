"""Clients of a queue that goes down, or is killed: each learns the end of its job, or that the job waits."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ecoshare.api.queue_client import Queue
from ecoshare.errors import QueueDown, UnfitEnvironment, UsageError
from ecoshare.queue.http_server import OpenRequests
from tests.queue.queues import WAITS, Served, served
from tests.warm import Started, ecoshare, wait_for

TOLD = ["sh", "-c", 'echo "$0 $1" >> ends', "{job}", "{state}"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    return tmp_path


def clients(up: Served) -> int:
    """Number of connections to the socket of a queue."""
    own = set[str]()
    for each in Path(f"/proc/{up.process.pid}/fd").iterdir():
        try:
            own.add(str(each.readlink()).removeprefix("socket:[").removesuffix("]"))
        except OSError:  # it was closed meanwhile
            continue
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sum(line[6] in own and line[5] == "03" and line[-1].endswith("/socket") for line in lines)


def ends(folder: Path) -> list[str]:
    path = folder / "ends"
    return path.read_text().splitlines() if path.exists() else []


def submitted(up: Served) -> Path:
    """Submit a job that runs until the returned file exists, one that waits for its place, and one behind that."""
    (up.folder / "waits.py").write_text(WAITS)
    go = up.folder / "go"
    jobs = [
        {"name": "runs", "script": "waits.py", "args": [str(go)]},
        {"name": "queued", "script": "waits.py", "args": [str(go)]},
        {"name": "behind", "script": "waits.py", "args": [str(go)], "after": ["queued"]},
    ]
    document = {"version": 1, "defaults": {"on_end": TOLD}, "jobs": jobs}
    (up.folder / "jobs.yaml").write_text(json.dumps(document))
    up.lines("submit", "jobs.yaml")
    up.begun("runs")
    return go


def ask(up: Served, command: str, *words: str) -> Started:
    return Started(command, "--queue", "test", *words, cwd=up.folder)


def check_put_off(client: Started, *names: str) -> None:
    """A client was told in one line that jobs wait for another session."""
    assert client.wait() == 7, client.stderr
    told = " ".join(client.stderr.split())
    waits = "waits" if len(names) == 1 else "wait"
    assert told.startswith("error: the queue 'test' is ") and told.count("error:") == 1
    assert told.endswith(f"down: {', '.join(names)} {waits} for `ecoshare up --resume --queue test`"), told


@pytest.mark.slow
@pytest.mark.parametrize("how", ["drain", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("now", "kill"))])
def test_each_client_learns_the_end_of_its_job_or_that_the_job_waits(folder: Path, how: str) -> None:
    """If it failed, a client would get an error of the server, or wait for ever, and mails would tell false ends."""
    with served(folder, "--lanes", "1", "--jobs-per-lane", "1") as up:
        go = submitted(up)
        of_running = [ask(up, "wait", "runs"), ask(up, "logs", "-f", "runs")]
        of_waiting = [ask(up, "wait", "queued", "behind"), ask(up, "wait", "behind", "queued", "runs")]
        output, late = (
            ask(up, "logs", "-f", "queued"),
            ask(up, "submit", "--wait", "waits.py", "--name", "late", "--", str(go)),
        )
        wait_for(lambda: clients(up) >= 6 and up.queue.left()[-1].name == "late")
        if how == "kill":
            up.kill()
        else:
            down = ask(up, "down", f"--{how}")
        check_put_off(output, "queued")
        check_put_off(late, "late")
        if how == "drain":
            check_put_off(of_waiting[0], "queued", "behind")  # though the queue is still up
            states = {job.name: job.state for job in up.queue.status(9).jobs}
            assert states == {"runs": "running", "queued": "queued", "behind": "arriving", "late": "queued"}
            assert "what does not end now waits for `ecoshare up --resume`" in up.lines("status")
            with pytest.raises(UsageError, match="is coming to its end, and takes no more jobs"):
                up.queue.retry("runs")
            assert up.queue.hold("queued").state == "held" and up.queue.release("queued").state == "queued"
            assert up.queue.prioritise("late", 3).priority == 3
            go.touch()
            assert [each.wait() for each in of_running] == [0, 0]
            assert of_running[1].stdout == "begun\nwent\n"
            check_put_off(of_waiting[1], "behind", "queued")
        else:
            check_put_off(of_running[0], "runs")
            check_put_off(of_running[1], "runs")
            check_put_off(of_waiting[0], "queued", "behind")
            check_put_off(of_waiting[1], "behind", "queued", "runs")
        if how != "kill":
            count = 3 if how == "drain" else 4
            assert down.wait() == 0
            assert (
                down.stdout == f"the queue 'test' is down; {count} jobs wait for `ecoshare up --resume --queue test`\n"
            )
            assert up.process.wait() == 0 and "Exception" not in up.process.stderr
    queue = up.queue
    assert queue.job("runs").state == ("completed" if how == "drain" else "queued"), (
        "a queue that is down tells of jobs"
    )
    told_once = ask(up, "logs", "runs")
    assert told_once.wait() == 0 and told_once.stdout.startswith("begun\n"), "its output is still there"
    check_put_off(ask(up, "logs", "-f", "queued"), "queued")
    assert [job.name for job in queue.left()][-3:] == ["queued", "behind", "late"]
    with pytest.raises(QueueDown) as told:
        queue.wait("queued", "runs")
    assert told.value.jobs == (("queued",) if how == "drain" else ("queued", "runs"))
    with pytest.raises(QueueDown, match=r"is not up: \d jobs wait for `ecoshare up --resume --queue test`"):
        queue.status()
    assert ends(folder) == (["runs completed"] if how == "drain" else []), "a job that goes on has not ended"
    if how != "now":
        go.touch()
        with served(folder, "--resume") as again:
            assert again.queue.job("late").priority == (3 if how == "drain" else 0)
            assert {job.state for job in again.queue.wait()} == {"completed"}
            assert again.queue.left() == []
            assert again.ask("down").stdout == "the queue 'test' is down\n"
        assert sorted(ends(folder)) == ["behind completed", "queued completed", "runs completed"], (
            "each end is told once"
        )


@pytest.mark.nightly
def test_a_queue_is_emptied(folder: Path) -> None:
    with pytest.raises(UnfitEnvironment, match="there is no queue 'test'"):
        Queue("test").clear()
    with served(folder) as up:
        submitted(up)
        refused = up.ask("down", "--now", "--clear")
        assert refused.returncode == 2 and "hint: `--clear --yes` forgets them" in refused.stderr.splitlines()
        with pytest.raises(UsageError, match="is up already"):
            up.queue.clear()
        assert up.lines("down", "--now", "--clear", "--yes") == ["the queue 'test' is down and empty"]
        assert [path.name for path in up.home.iterdir()] == ["lock"]
    assert up.lines("down", "--clear") == ["the queue 'test' is down and empty"], "of a queue that is down, too"
    with served(folder) as again:
        assert again.queue.status(9).jobs == []


async def _hangs(_scope: Scope, _receive: Receive, _send: Send) -> None:
    await asyncio.Event().wait()


async def _answers(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0.01)
    await PlainTextResponse("in time")(scope, receive, send)


async def _streams(scope: Scope, receive: Receive, send: Send) -> None:
    async def lines() -> AsyncIterator[str]:
        yield "begun"
        await asyncio.Event().wait()

    await StreamingResponse(lines())(scope, receive, send)


@pytest.mark.parametrize(
    ("app", "code", "said"),
    [(_hangs, 503, '"kind":"down"'), (_answers, 200, "in time"), (_streams, 200, "begun")],
    ids=["hangs", "answers", "streams"],
)
def test_a_request_in_progress_is_answered(app: ASGIApp, code: int, said: str) -> None:
    """If it failed, uvicorn would answer 500, or cut a stream, and write tracebacks into the log of the queue."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client stays")

    async def serve() -> None:
        requests = OpenRequests(app, "test")
        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "GET", "path": "/"}
        serving = asyncio.create_task(requests(scope, receive, send))
        await asyncio.sleep(0)
        await requests.end(0.1)
        await serving
        await requests(scope, receive, send)

    asyncio.run(serve())
    first, second = (at for at, each in enumerate(sent) if each["type"] == "http.response.start")
    answer, refusal = sent[:second], sent[second:]
    assert first == 0 and answer[0]["status"] == code
    assert said.encode() in b"".join(each.get("body", b"") for each in answer)
    assert not answer[-1].get("more_body", False), "the answer was cut"
    assert refusal[0]["status"] == 503 and b'"kind":"down"' in refusal[1]["body"], "later requests are refused"


@pytest.mark.nightly
@pytest.mark.parametrize("most_kib", [700_000, 1_000_000, 1_500_000])
def test_a_queue_that_is_said_to_be_up_can_run_jobs(tmp_path: Path, most_kib: int) -> None:
    """With little address space, torch cannot be loaded. Such a queue took jobs, and was gone a second later."""
    environment = {**os.environ, "ECOSHARE_STATE": str(tmp_path / "state")}
    line = f'ulimit -v {most_kib}; exec "$0" -m ecoshare up --detach --device cpu'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        assert "error: " in done.stderr and "Traceback" not in done.stderr
        return
    (tmp_path / "train.py").write_text("print('done')\n")
    ran = ecoshare("submit", "--wait", tmp_path / "train.py", environment=environment)
    assert ecoshare("down", "--yes", environment=environment).returncode == 0
    assert ran.returncode == 0
