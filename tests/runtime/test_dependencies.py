"""Jobs that wait for other jobs, in real runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.events import CancelRequested, JobArrived
from ecoshare.record import event_log
from tests.runtime.running import check, job_file, resume, run, start
from tests.warm import wait_for

EXITS = "import sys, time\ntime.sleep(float(sys.argv[2]))\nsys.exit(int(sys.argv[1]))\n"


def ends(name: str, code: int = 0, after_s: float | str = 0.05, **keys: Any) -> dict[str, Any]:
    return {"name": name, "script": "exits.py", "args": [str(code), str(after_s)], **keys}


@pytest.mark.nightly
def test_jobs_arrive_after_what_they_wait_for_or_never(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    told = ["sh", "-c", "echo {job} {state} >> told"]
    done = run(
        tmp_path,
        ends("prepare"),
        ends("train", 1, after=["prepare"]),
        ends("report", after=["train"], on_end=told),
        ends("clean", after_any=["report", "train"]),
        ends("sweep", 0, "{x}", after=["prepare"], sweep={"grid": {"x": [0.01, 0.02]}}),
        ends("best", after=["sweep"]),
    )
    assert done.code == 1 and done.summary["state"] == "failed"
    states = {job["name"]: job["state"] for job in done.summary["jobs"]}
    trials = [states.pop(name) for name in list(states) if name.startswith("sweep.")]
    assert trials == ["completed", "completed"]
    assert states == {
        "prepare": "completed",
        "train": "failed",
        "report": "cancelled",
        "clean": "completed",
        "best": "completed",
    }
    assert done.job("report")["error"] == "train failed, and had to complete first"
    assert (tmp_path / "told").read_text() == "report cancelled\n"
    entries = list(event_log.read(done.folder / "events.jsonl"))
    assert [each.job for each in entries if isinstance(each, CancelRequested)] == ["report"]
    order = [each.job.name for each in entries if isinstance(each, JobArrived)]
    assert order[0] == "prepare" and order.index("best") > max(order.index(name) for name in order if "sweep." in name)


@pytest.mark.nightly
def test_a_resumed_run_knows_what_ended_before_and_cancels_nothing_that_was_stopped(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    wait = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.05)\n"
    (tmp_path / "waits.py").write_text(wait)
    path = job_file(
        tmp_path,
        ends("a"),
        ends("bad", 1),
        {"name": "long", "script": "waits.py", "after_any": ["bad"]},  # it keeps the turn
        ends("b", after=["a", "long"]),
        ends("c", after=["bad"]),
        ends("d", after=["bad"], after_any=["long"]),
    )
    process = start(path)
    folder = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: _cancelled(folder) == {"c", "d"} and "long" in _arrived(folder), otherwise=lambda: process.stderr)
    process.send_signal(signal.SIGINT)
    process.wait()
    check(folder)
    before = {job["name"]: job["state"] for job in json.loads((folder / "summary.json").read_text())["jobs"]}
    cancelled = dict.fromkeys(("long", "b", "c", "d"), "cancelled")
    assert before == {"a": "completed", "bad": "failed", **cancelled}
    (tmp_path / "go").touch()
    after = resume(folder)
    assert {job["name"]: job["state"] for job in after.summary["jobs"]} == {
        **before,
        "long": "completed",
        "b": "completed",
    }
    assert _cancelled(folder) == {"c", "d"}


def _cancelled(folder: Path) -> set[str]:
    return {each["job"] for each in _lines(folder) if each.get("event") == "CancelRequested"}


def _arrived(folder: Path) -> set[str]:
    return {each["job"]["name"] for each in _lines(folder) if each.get("event") == "JobArrived"}


def _lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
