"""A queue that is killed or stopped goes on: nothing that was acknowledged is lost, and nothing runs twice."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ecoshare.queue.job_store import JobStore
from ecoshare.record import event_log
from tests.queue.queues import WAITS, Served, check_replay, served
from tests.warm import Started, ecoshare, wait_for

ONCE = "import sys\nwith open(sys.argv[1], 'a') as told:\n    print(sys.argv[2], file=told)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    (tmp_path / "once.py").write_text(ONCE)
    return tmp_path


def once(up: Served, name: str, *more: str) -> None:
    up.lines("submit", "once.py", "--name", name, *more, "--", str(up.folder / "told"), name)


def noted_start(up: Served, name: str) -> float | None:
    """Time of the first start of a job (s since 1970) that is on the disk; None if there is none yet."""
    with contextlib.closing(JobStore(up.home / "queue.db")) as store:
        row = store.find(name)
    return row.started_unix_s if row is not None else None


@pytest.mark.slow
def test_a_killed_queue_goes_on(folder: Path) -> None:
    with served(folder) as up:
        once(up, "before")
        up.lines("wait", "before")
        go = up.waits("cut-off")
        up.begun("cut-off")
        once(up, "behind", "--after", "cut-off", "--priority", "4")
        up.waits("unwanted", "--after", "cut-off")
        up.lines("cancel", "unwanted")
        once(up, "held", "--after", "before", "--hold")
        jobs = {"version": 1, "jobs": [{"name": "gone", "script": "gone.py", "after": ["cut-off"]}]}
        (folder / "gone.py").write_text("")
        (folder / "gone.yaml").write_text(json.dumps(jobs))
        up.lines("submit", "gone.yaml")
        (folder / "gone.py").unlink()
        up.lines("priority", "behind", "9")
        wait_for(lambda: noted_start(up, "cut-off"))
        started_s = noted_start(up, "cut-off")
        assert started_s == pytest.approx(up.queue.job("cut-off").started_unix_s, abs=0.1)
        up.kill()
    assert "the queue 'test' is not up" in up.ask("status").stderr
    refused = ecoshare("up", "--name", "test", cwd=folder)
    assert refused.returncode == 2 and "have not ended" in refused.stderr, "the socket of a dead queue is no obstacle"
    with served(folder, "--resume") as again:
        states = {job.name: job for job in again.queue.status(100).jobs}
        assert states["unwanted"].state == "cancelled" and states["before"].state == "completed"
        assert states["gone"].state == "failed" and "gone.py" in states["gone"].reason
        assert states["behind"].waits_for == ["cut-off"] and states["behind"].priority == 9
        assert states["held"].state == "held"
        again.lines("release", "held")
        wait_for(lambda: again.queue.job("cut-off").attempts == 2, otherwise=lambda: again.process.stderr)
        assert again.queue.job("cut-off").started_unix_s == started_s, "the first start of all sessions"
        go.touch()
        assert [job.state for job in again.queue.wait("cut-off", "behind", "held")] == ["completed"] * 3
        assert again.queue.job("cut-off").started_unix_s == started_s
        again.lines("down")
    assert Counter((folder / "told").read_text().split()) == {"before": 1, "behind": 1, "held": 1}
    check_replay(again.run)
    assert len(list((again.home / "runs").glob("[0-9]*"))) == 1, "it is one run"


FAILS_FIRST = """
import os, sys, time
if os.environ.get("ECOSHARE_ATTEMPT", "1") == "1":
    sys.exit(3)
print("begun", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("segment_bytes", [None, 1], ids=["in one segment", "in another segment"])
def test_jobs_that_are_to_run_again_survive_a_kill(folder: Path, segment_bytes: int | None) -> None:
    """The log says that the first has failed, and that the second was cancelled for it."""
    (folder / "fails_first.py").write_text(FAILS_FIRST)
    go = folder / "go"
    with served(folder, segment_bytes=segment_bytes) as up:
        up.lines("submit", "fails_first.py", "--name", "first", "--hold", "--", str(go))
        once(up, "second", "--after", "first")
        up.lines("release", "first")
        assert up.ask("wait", "second").returncode == 1 and up.queue.job("first").exit_code == 3
        if segment_bytes is not None:
            wait_for(lambda: event_log.segments(up.run / "events.jsonl"), otherwise=lambda: up.process.stderr)
        assert up.lines("retry", "first") == ["first", "second"]
        up.begun("first")
        up.lines("hold", "second")
        up.kill()
    with served(folder, "--resume") as again:
        assert again.queue.job("second").state == "held"
        wait_for(lambda: again.queue.job("first").attempts == 3, otherwise=lambda: again.process.stderr)
        go.touch()
        again.lines("release", "second")
        assert [job.state for job in again.queue.wait("first", "second")] == ["completed"] * 2
        again.lines("down")
    assert (folder / "told").read_text().split() == ["second"]
    check_replay(again.run)
    summary = json.loads((again.run / "summary.json").read_text())
    assert {job["name"]: job["state"] for job in summary["jobs"]} == {"first": "completed", "second": "completed"}


@pytest.mark.nightly
def test_a_drained_queue_lets_what_runs_end_and_the_rest_wait(folder: Path) -> None:
    (folder / "waits.py").write_text(WAITS)
    go = folder / "go"
    sweep: dict[str, Any] = {"grid": {"x": list(range(6))}, "parallel": 2}
    job = {"name": "sweep", "script": "waits.py", "args": [str(go), "{x}"], "sweep": sweep}
    whole = {"name": "whole", "script": "waits.py", "args": [str(go), "{x}"], "sweep": {"grid": {"x": [0]}}}
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": [whole, job]}))
    with served(folder, "--lanes", "3", "--jobs-per-lane", "1") as up:
        up.lines("submit", "jobs.yaml")
        up.begun("whole.0000")
        up.begun("sweep.0000")
        up.begun("sweep.0001")
        once(up, "waiting")
        up.lines("hold", "waiting")
        once(up, "after", "--after", "waiting")
        down = Started("down", "--queue", "test", "--drain", cwd=folder)
        wait_for(lambda: up.queue.status(0).ending == "drain", otherwise=lambda: down.stderr)
        go.touch()
        assert down.wait() == 0 and up.process.wait(30) == 0
    check_replay(up.run)
    assert up.queue.job("whole").state == "completed", "all of its trials had begun"
    assert up.queue.job("sweep").ended_unix_s is None
    with served(folder, "--resume") as again:
        assert again.queue.job("waiting").state == "held", "a drain releases nothing"
        assert again.queue.wait("sweep")[0].state == "completed"
        trials = sorted(path.name for path in (again.run / "jobs").glob("sweep.*"))
        assert trials == [f"sweep.000{number}" for number in range(6)]
        again.lines("release", "waiting")
        assert [job.state for job in again.queue.wait("waiting", "after")] == ["completed"] * 2
        assert again.ask("down").returncode == 0
    assert (folder / "told").read_text().split() == ["waiting", "after"]
