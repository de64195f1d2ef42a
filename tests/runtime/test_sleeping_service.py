"""A server with a scheduler of its own beside training, in real runs on processors."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.running import SCRIPTS, Finished, job_file, run, settled, start
from tests.warm import Started, wait_for

TRAINS = """
import sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps, times = int(sys.argv[1]), []
for _ in range(steps):
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    times.append(time.monotonic())  # the iteration is not over, so the job has the turn
    time.sleep(0.02)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex(), flush=True)
with open("times.txt", "w") as file:
    file.writelines(f"{each}\\n" for each in times)
"""


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]


def server(folder: Path, ports: tuple[int, int], *args: str, **keys: Any) -> dict[str, Any]:
    own, port = ports
    origin = f"http://127.0.0.1:{own}"
    return {
        "name": "llm",
        "script": str(SCRIPTS / "sleeping_server.py"),
        "args": [str(own), str(folder / "faults.txt"), *args],
        "service": {"p99": "20 s", "sleep": f"{origin}/sleep", "wake": f"{origin}/wake", "port": port},
        **keys,
    }


def trains(folder: Path, steps: int) -> dict[str, Any]:
    (folder / "trains.py").write_text(TRAINS)
    return {"name": "trains", "script": "trains.py", "args": [str(steps)]}


def ask(port: int, path: str = "/v1/completions") -> tuple[int, list[bytes]]:
    """Status and pieces of an answer, as they came; no pieces if the server has ended."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        try:
            connection.request("POST", path, b"3")
            answer = connection.getresponse()
            return answer.status, list(iter(lambda: answer.read1(1000), b""))
        except (OSError, http.client.HTTPException):
            return 0, []


def asleep(log: bytes) -> list[tuple[float, float]]:
    """Times (s) at which each sleep of the server began and ended."""
    words = [line.split() for line in log.decode().splitlines()]
    assert [word for word, _ in words] == ["/sleep", "/wake"] * (len(words) // 2) + ["/sleep"] * (len(words) % 2)
    times_s = [float(at_s) for _, at_s in words] + [float("inf")]
    return list(zip(times_s[::2], times_s[1::2], strict=False))


def finished(started: Started, folder: Path) -> Finished:
    wait_for(lambda: started.poll() is not None)
    assert "Traceback" not in started.stderr, started.stderr
    return Finished(started.returncode or 0, started.stdout, started.stderr, folder / "ecoshare-runs" / "latest")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_server_sleeps_whenever_training_has_the_turn(tmp_path: Path) -> None:
    ports, job = free_ports(), trains(tmp_path, 200)
    alone = settled(tmp_path / "trains.py", ("200",), tmp_path)
    llm = server(tmp_path, ports, "--calls", "0.5", "--start", "1")
    started = start(job_file(tmp_path, llm, job), "--lanes", "1")
    seen: list[tuple[int, list[bytes]]] = []
    while started.poll() is None:
        seen.append(ask(ports[1]))
        time.sleep(0.05)
    done = finished(started, tmp_path)
    assert done.code == 0, done.stderr
    assert done.log("trains") == alone
    answers = [pieces for status, pieces in seen if status == 200]
    whole = [pieces for pieces in answers if b"".join(pieces) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"]
    assert len(whole) > 5 and len(answers) - len(whole) <= 1, "only the end of the run cuts an answer"
    assert sum(len(pieces) == 3 for pieces in whole) > len(whole) / 2, "pieces come as the server sends them"
    assert {status for status, _ in seen} <= {0, 200, 503}
    assert not (tmp_path / "faults.txt").exists()
    sleeps = asleep(done.log("llm"))
    assert len(sleeps) > 2
    times_s = [float(each) for each in (tmp_path / "times.txt").read_text().split()]
    in_sleeps = [sum(from_s <= at_s <= to_s for at_s in times_s) for from_s, to_s in sleeps]
    assert max(in_sleeps) > 3, "training has its share, and not one iteration"
    for at_s in times_s:
        # Until it listens, the server loads its model without the turn.
        assert at_s < sleeps[0][0] or any(from_s <= at_s <= to_s for from_s, to_s in sleeps), at_s
    told = done.job("llm")["service"]
    assert abs(told["answered"] - len(whole)) <= 1, "the end of the run may come between an answer and its count"
    assert told["failed"] == told["refused"] == 0
    assert told["p50_s"] > 0.09 and told["batches"] == {"1": told["arrived"]}


@pytest.mark.slow
def test_a_server_that_nobody_asks_sleeps_until_the_run_ends(tmp_path: Path) -> None:
    """If it failed, its memory would be missing for the jobs beside it."""
    done = run(tmp_path, server(tmp_path, free_ports()), trains(tmp_path, 60), options=("--lanes", "1"))
    assert (done.code, done.job("llm")["state"]) == (0, "completed"), done.stderr
    assert len(asleep(done.log("llm"))) == 1 and done.log("llm", "stderr") == b""
    plan = json.loads((done.folder / "plan.json").read_text())
    assert plan["jobs"][0]["service"]["sleep"].endswith("/sleep"), "the job file of a run keeps the server"


@pytest.mark.nightly
def test_a_server_alone_never_sleeps(tmp_path: Path) -> None:
    ports = free_ports()
    started = start(job_file(tmp_path, server(tmp_path, ports)), "--lanes", "1")
    wait_for(lambda: ask(ports[1])[0] == 200)
    os.kill(started.pid, signal.SIGINT)
    done = finished(started, tmp_path)
    assert (done.code, done.job("llm")["service"]["answered"], done.log("llm")) == (130, 1, b"")


@pytest.mark.nightly
def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    ports = free_ports()
    with socket.create_server(("127.0.0.1", ports[1])):
        done = run(tmp_path, server(tmp_path, ports, retries=0), trains(tmp_path, 10), options=("--lanes", "1"))
    assert done.job("llm")["state"] == "failed"
    assert done.job("llm")["error"].startswith(f"port {ports[1]}: Address already in use; another job of the run may")
    assert done.log("llm", "stderr") == f"port {ports[1]}: Address already in use\n".encode()


@pytest.mark.nightly
def test_a_server_that_cannot_sleep_ends(tmp_path: Path) -> None:
    """If it failed, training would wait for ever, or run beside a server that has its memory."""
    llm = server(tmp_path, free_ports(), retries=0)
    llm["service"]["sleep"] = llm["service"]["sleep"].replace("/sleep", "/health")
    llm["args"] += ["--refuses", "/health"]
    done = run(tmp_path, llm, trains(tmp_path, 60), options=("--lanes", "1"))
    assert [done.job(name)["state"] for name in ("llm", "trains")] == ["failed", "completed"]
    said = done.log("llm", "stderr").decode().splitlines()
    assert len(said) == 3 and said[-1].endswith("/health: 403 Forbidden; so it ends"), said


@pytest.mark.nightly
def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    ports = free_ports()
    started = start(job_file(tmp_path, server(tmp_path, ports), trains(tmp_path, 150)), "--lanes", "1")
    wait_for(lambda: ask(ports[1])[0] == 200)
    latest = tmp_path / "ecoshare-runs" / "latest"
    assert ask(ports[0], "/dies") == (0, [])
    wait_for(lambda: (latest / "jobs" / "llm" / "stdout.attempt-1.log").exists())
    wait_for(lambda: ask(ports[1])[0] == 200)
    done = finished(started, tmp_path)
    assert (done.code, done.job("llm")["state"], done.job("llm")["attempts"]) == (0, "completed", 2)
