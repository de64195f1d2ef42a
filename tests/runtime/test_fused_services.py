"""Services with `isolation: lane` through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.jobs.load import load
from ecoshare.record import event_log
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.plan_text import fused_words
from tests.planning import planned
from tests.runtime.running import job_file, run

PROGRAM = """
import sys
import ecoshare
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)

def handler(requests):
    with torch.inference_mode():
        return model(torch.ones(len(requests), 8)).tolist()

if sys.argv[1] == "train":
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(100):
        model(torch.randn(512, 8)).square().mean().backward()
        optimizer.step()
elif sys.argv[1] == "http":
    server = ecoshare.serve(handler)
    server.app()
    server.run()
else:
    ecoshare.serve(handler).run()
"""


def service(name: str, what: str = "serve", **requests: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"p99": "2 s", **({"requests": requests} if requests else {})}
    return {"name": name, "script": "program.py", "args": [what], "isolation": "lane", "service": described}


@pytest.mark.nightly
def test_services_of_a_program_share_a_process_until_the_training_ends(tmp_path: Path) -> None:
    """The open-ended one ends with the last other job, and the one for HTTP has a process of its own."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(
        tmp_path,
        service("endless", rate=20),
        service("counted", rate=100, count=30),
        service("http", "http", rate=100, count=5),
        {"name": "trains", "script": "program.py", "args": ["train"], "isolation": "lane"},
        options=("--lanes", "1"),
    )
    assert done.code == 0, done.stderr
    assert {job["state"] for job in done.summary["jobs"]} == {"completed"}
    counted, http = done.job("counted"), done.job("http")
    assert (counted["service"]["answered"], counted["attempts"]) == (30, 1)
    assert (http["service"]["answered"], http["attempts"]) == (5, 2)
    assert counted["energy"]["value_j"] > 0.0 and counted["service"]["p99_s"] < 2.0
    endless = done.job("endless")["service"]
    assert endless["arrived"] == endless["answered"] + endless["failed"]
    shared, moved = fused_words(RunHistory(event_log.read(done.folder / "events.jsonl")))
    assert shared.startswith("isolation lane: 2 jobs ran in 1 shared process")
    assert moved.endswith("http: needs a process of its own: it answers over HTTP")


def test_a_service_with_requests_from_outside_is_planned_with_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = job_file(tmp_path, service("outside"), service("driven", rate=5))
    device = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 8 << 30, 2)
    plan = planned(load(path), (device,), policy="fair")
    assert [job.spec.fused for job in plan.jobs] == [False, True]
    note = "outside gets a process of its own: `isolation: lane` is for services with `requests`"
    assert note in plan.notes
