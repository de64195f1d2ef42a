"""Services beside other jobs in a real run on processors."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import WORK_OVER
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import DeviceInfo
from ecoshare.base.service import ARRIVALS, RequestSource, ServiceSpec, service_of
from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobArrived, WorkOver
from ecoshare.errors import UsageError
from ecoshare.jobs.load import load
from ecoshare.record import event_log
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.planning import plan as planning
from ecoshare.runtime.planning.plan_checks import cut_notes, write_arrivals
from tests.planning import planned as made_plan
from tests.runtime.running import job_file, resume, run, start
from tests.runtime.test_resume import cut
from tests.warm import wait_for

SERVES = """
import time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
with torch.no_grad():
    print("up", flush=True)
    while True:
        model(torch.ones(1, 4))
        time.sleep(0.01)
"""
"""Script that sleeps, with an inference now and then, and never ends by itself."""

DEVICE = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 8 << 30, 2)


def service(folder: Path, **options: Any) -> dict[str, Any]:
    (folder / "serves.py").write_text(SERVES)
    return {"name": "serves", "script": "serves.py", "service": {"p99": "50 ms", **options}}


@pytest.mark.slow
def test_a_service_ends_with_the_other_jobs_and_counts_as_completed(tmp_path: Path) -> None:
    """If it failed, the run would go on for ever, or be told as interrupted."""
    (tmp_path / "short.py").write_text("import time\ntime.sleep(0.3)\n")
    done = run(tmp_path, service(tmp_path, requests={"rate": 5}), {"name": "short", "script": "short.py"})
    assert (done.code, done.summary["state"]) == (0, "completed"), done.stderr
    assert [done.job(name)["state"] for name in ("serves", "short")] == ["completed", "completed"]
    assert f"serves: stopped: {WORK_OVER}" in done.stderr and done.log("serves") == b"up\n"
    assert "serves serves until all other jobs have ended" in " ".join(done.summary["notes"])
    entries = list(event_log.read(done.folder / "events.jsonl"))
    [spec] = [each.job for each in entries if isinstance(each, JobArrived) and each.job.service is not None]
    assert spec.service == ServiceSpec(0.05, requests=RequestSource(rate_per_s=5.0)) and spec.retries == 100
    cut(done.folder, lambda entry: isinstance(entry, WorkOver))  # the controller had died there
    again = resume(done.folder, forged=True)
    assert (again.code, again.job("serves")["state"]) == (0, "completed"), "it has nothing to serve"
    assert not any(isinstance(each, WorkOver) for each in event_log.read(done.folder / "events.jsonl"))


@pytest.mark.nightly
def test_ctrl_c_ends_services_alone(tmp_path: Path) -> None:
    started = start(job_file(tmp_path, service(tmp_path)))
    latest = tmp_path / "ecoshare-runs" / "latest"
    log = latest / "jobs" / "serves" / "stdout.log"
    wait_for(lambda: log.exists() and log.read_text() == "up\n")
    os.kill(started.pid, signal.SIGINT)
    wait_for(lambda: started.poll() is not None)
    summary = json.loads((latest / "summary.json").read_text())
    assert (started.returncode, summary["state"], summary["jobs"][0]["state"]) == (130, "interrupted", "completed")


def planned(folder: Path, **options: Any) -> planning.Plan:
    (folder / "day.csv").write_text("arrival_s\n0\n1\n2.5\n")
    return made_plan(load(job_file(folder, service(folder, **options))), (DEVICE,), policy="fair")


def test_arrivals_are_written_once_and_named_to_the_job(tmp_path: Path) -> None:
    plan = planned(tmp_path, requests={"trace": "day.csv", "speed": 10, "count": 2}, batch=[1, 4])
    [job], folder = plan.jobs, RunFolder(tmp_path / "run")
    write_arrivals(plan.jobs, folder)
    path = folder.job("serves") / ARRIVALS
    assert path.read_text() == "0.000000\n0.100000\n"
    (tmp_path / "day.csv").write_text("arrival_s\n7\n")
    write_arrivals(plan.jobs, folder)
    assert path.read_text() == "0.000000\n0.100000\n", "a resumed run has the arrivals of its first session"
    assert job.spec.service == ServiceSpec(0.05, (1, 4), requests=RequestSource(arrivals=ARRIVALS))
    assert service_of(plan.as_dict()["jobs"][0]["service"]) == job.spec.service
    given = job.for_node()._service(folder.job("serves"))
    assert given is not None and service_of(given).requests == RequestSource(arrivals=str(path))


def test_a_service_finds_its_files_from_its_own_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a run with a relative `--runs`, as by default, would have no record of any request."""
    monkeypatch.chdir(tmp_path)
    [job] = planned(tmp_path, requests={"trace": "day.csv"}).jobs
    start = StartJob(1, "serves", 1, (0,), 1 << 30)
    launch = job.for_node().launch(start, [], Path("runs", "serves"), [DEVICE], {}, 0.0, 1 << 30, 1 << 30, 0)
    assert launch.service is not None
    assert launch.requests_path == str(tmp_path / "runs" / "serves" / "requests.jsonl")
    assert launch.service["requests"]["arrivals"] == str(tmp_path / "runs" / "serves" / ARRIVALS)


def test_the_plan_names_jobs_that_a_service_cannot_interrupt_for_lack_of_memory(tmp_path: Path) -> None:
    """40 GiB hold what both keep and one of their iterations, but not both iterations."""
    [serves] = planned(tmp_path).jobs
    serves = replace(serves, spec=replace(serves.spec, memory=MemoryDemand(4 << 30, 10 << 30)))

    def notes(*trains: MemoryDemand) -> list[str]:
        others = [
            replace(serves, spec=replace(serves.spec, name=f"t{place}", service=None, cuttable=True, memory=memory))
            for place, memory in enumerate(trains)
        ]
        return cut_notes([serves, *others], 40 << 30)

    why = "the device has no memory for the caches of both"
    large, small = MemoryDemand(10 << 30, 16 << 30), MemoryDemand(4 << 30, 4 << 30)
    assert notes(small) == [] == notes(MemoryDemand(20 << 30, 19 << 30)), "both fit, or not even emptied caches"
    assert notes(small, large) == [f"beside a service, the turn of t1 ends between iterations only: {why}"]


def test_a_trace_that_was_changed_after_the_job_file_was_read(tmp_path: Path) -> None:
    plan = planned(tmp_path, requests={"trace": "day.csv"})
    (tmp_path / "day.csv").write_text("arrival_s\nx\n")
    with pytest.raises(UsageError, match=r"requests of serves: .*day.csv:2:1: expected a time as a number, got 'x'"):
        write_arrivals(plan.jobs, RunFolder(tmp_path / "run"))


def test_notes_of_the_plan_say_until_when_services_go_on(tmp_path: Path) -> None:
    assert "serves serves until Ctrl-C" in planned(tmp_path).notes
    assert not [note for note in planned(tmp_path, requests={"trace": "day.csv"}).notes if "serves" in note]
    sleeps = {"sleep": "http://localhost:8000/sleep", "wake": "http://localhost:8000/wake", "port": 8700}
    note = "serves sleeps while other jobs of its lane have the turn: clients ask it at http://127.0.0.1:8700"
    assert note in planned(tmp_path, **sleeps).notes
