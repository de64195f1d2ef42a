"""Requests of real services beside training on the same processors."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import pytest

from ecoshare.core.commands import MoveJob
from ecoshare.core.events import TargetMissed
from ecoshare.record import event_log
from ecoshare.record.results.service_summary import intervals
from tests.runtime.running import job_file, run, start
from tests.warm import wait_for

TRAINS = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data, target = torch.randn(512, 256), torch.randint(0, 8, (512,))
for _ in range({steps}):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)
"""

SERVES = """
import ecoshare
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).eval()
samples = torch.randn(32, 64)
answers = [None] * 32

def handler(numbers):
    with torch.inference_mode():
        found = model(samples[numbers])
    if 13 in numbers:
        raise ValueError("number 13")
    return found.argmax(1).tolist()

with ecoshare.serve(handler, batch=(1, 2, 4), sample=lambda number: number % 32) as server:
    server.run()
"""

ASGI = """
import socket
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(4, 2)

def answer(request):  # Starlette calls it in a thread of its pool
    with torch.inference_mode():
        return JSONResponse(model(torch.ones(1, 4)).tolist())

with socket.create_server(("127.0.0.1", 0)) as own:
    print(own.getsockname()[1], flush=True)
    config = uvicorn.Config(Starlette(routes=[Route("/", answer)]), log_level="warning")
    uvicorn.Server(config).run(sockets=[own])
"""


@pytest.mark.slow
def test_training_gets_the_same_losses_beside_a_service_which_answers_all(tmp_path: Path) -> None:
    (tmp_path / "trains.py").write_text(TRAINS.format(steps=250))
    (tmp_path / "serves.py").write_text(SERVES)
    trains = {"name": "trains", "script": "trains.py"}
    alone = run(tmp_path, trains)
    serves = {"name": "serves", "script": "serves.py", "service": {"p99": "5 s", "requests": {"rate": 60}}}
    beside = run(tmp_path, trains, serves, options=("--lanes", "1"))
    assert (alone.code, beside.code) == (0, 0), beside.stderr
    assert beside.log("trains") == alone.log("trains") and alone.log("trains").count(b"\n") == 250
    found = beside.job("serves")["service"]
    assert found["answered"] > 30 and found["met"] is True
    assert found["arrived"] == found["answered"] + found["failed"], "the end of the run leaves none without an answer"
    assert found["failed"] >= found["arrived"] // 32 - 1, "one request in 32 is at fault, and fails alone"
    assert beside.job("serves")["handovers"] > 10
    assert sum(found["batches"].values()) >= len(intervals(beside.folder / "jobs" / "serves", 1))


@pytest.mark.slow
def test_a_server_that_knows_nothing_of_ecoshare_answers_beside_training(tmp_path: Path) -> None:
    """It waits in `accept` without the turn, and has it in each forward call, in threads of a pool."""
    pytest.importorskip("uvicorn")
    (tmp_path / "trains.py").write_text(TRAINS.format(steps=400))
    (tmp_path / "server.py").write_text(ASGI)
    jobs = (
        {"name": "trains", "script": "trains.py"},
        {"name": "server", "script": "server.py", "service": {"p99": "100 ms"}},
    )
    started = start(job_file(tmp_path, *jobs), "--lanes", "1")
    latest, bodies = tmp_path / "ecoshare-runs" / "latest", list[bytes]()
    port = latest / "jobs" / "server" / "stdout.log"
    wait_for(lambda: port.exists() and port.read_text().endswith("\n"))
    url = f"http://127.0.0.1:{port.read_text().strip()}/"

    def ask() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                bodies.append(answer.read())
        except OSError:
            return False
        return True

    wait_for(ask)
    threads = [threading.Thread(target=lambda: [ask() for _ in range(20)]) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    wait_for(lambda: started.poll() is not None)
    assert started.returncode == 0
    assert len(bodies) > 20 and len(set(bodies)) == 1
    summary = json.loads((latest / "summary.json").read_text())
    server = next(job for job in summary["jobs"] if job["name"] == "server")
    assert server["state"] == "completed"
    assert server["service"]["answered"] == len(bodies) and server["handovers"] > 5
    assert 0.0 < server["service"]["p50_s"] < 0.5
    assert server["held_s"] < 0.5 * summary["makespan_s"], "it held its turn while it waited for requests"


SLOW_STEPS = """
import signal, sys, time
import torch
if "uncut" in sys.argv:
    signal.signal(signal.SIGURG, lambda *_: None)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(int(sys.argv[2])):
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    time.sleep(float(sys.argv[1]))
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_a_target_missed_for_a_minute_parts_the_jobs(tmp_path: Path) -> None:
    """The neighbour with iterations that are too long moves to the other lane, beside the one with short iterations."""
    (tmp_path / "steps.py").write_text(SLOW_STEPS)
    (tmp_path / "serves.py").write_text(SERVES.replace("if 13 in numbers:", "if False:"))
    done = run(
        tmp_path,
        {"name": "serves", "script": "serves.py", "service": {"p99": "150 ms", "requests": {"rate": 10, "count": 720}}},
        {"name": "short", "script": "steps.py", "args": ["0.01", "6000"]},
        {"name": "long", "script": "steps.py", "args": ["0.4", "175", "uncut"]},
        options=("--lanes", "2"),
    )
    entries = list(event_log.read(done.folder / "events.jsonl"))
    missed, *_ = [each for each in entries if isinstance(each, TargetMissed)]
    moved = [each for each in entries[entries.index(missed) :] if isinstance(each, MoveJob)]
    assert missed.missed > 0.01 * missed.requests and (moved[0].job, moved[0].lane) == ("long", 1)
    service = done.job("serves")["service"]
    assert service["missed_minutes"] == 1 and done.code == 5
    assert "error: missed their targets for a minute or more: serves" in done.stderr
    answers = intervals(done.folder / "jobs" / "serves", 1)
    since_s = answers[0].from_s + 66.0
    after = [each for each in answers if each.from_s > since_s]
    assert sum(each.late for each in after) < 0.1 * sum(each.answered for each in after)
