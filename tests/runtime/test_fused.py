"""Sweeps with trials that share a process."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobExited
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.record import event_log
from tests.runtime.running import SCRIPTS, alone, job_file, resume, run, start
from tests.warm import wait_for

TRIAL = str(SCRIPTS / "trial.py")
PRINTED = "val_loss={:f}"


def sweep(*args: str, script: str = TRIAL, **keys: Any) -> dict[str, Any]:
    return {"name": "s", "script": script, "args": list(args), "isolation": "lane", "sweep": keys}


def started(folder: Path) -> dict[tuple[str, int], StartJob]:
    """Commands that started attempts."""
    commands = [each for each in event_log.read(folder / "events.jsonl") if isinstance(each, StartJob)]
    return {(each.job, each.attempt): each for each in commands}


@pytest.mark.slow
def test_once_a_class_is_known_its_trials_share_a_process(tmp_path: Path) -> None:
    job = sweep("--epochs=4", "--ms=1", grid={"lr": [0.1, 0.05, 0.02, 0.01], "width": [4, 16]}, metric=PRINTED)
    job["sweep"]["parallel"] = 3
    done = run(tmp_path, job)
    assert done.code == 0, done.stderr
    fused = [name for (name, _), command in started(done.folder).items() if command.fused]
    assert 4 <= len(fused) < 8
    for each in done.summary["jobs"]:
        values = each["values"]
        own = ("--epochs=4", f"--lr={values['lr']}", f"--width={values['width']}")
        code, printed = alone(SCRIPTS / "trial.py", own, SCRIPTS)
        assert code == 0 and done.log(each["name"]) == printed
        assert each["iterations"] == 20 and each["attempts"] == 1
        assert each["energy"]["value_j"] > 0


@pytest.mark.nightly
def test_trials_that_must_have_a_process_of_their_own_get_one(tmp_path: Path) -> None:
    """Each trial has loader workers: one is moved out, and after that the others are not let in."""
    job = sweep("--epochs=1", "--seed", "{seed}", script=str(SCRIPTS / "signals.py"), grid={"seed": [1, 2, 3, 4, 5]})
    job["args"] = []
    job["env"] = {"SEED": "{seed}"}
    job["sweep"]["parallel"] = 1
    done = run(tmp_path, job)
    assert done.code == 0, done.stderr
    entries = [entry for entry in event_log.read(done.folder / "events.jsonl") if isinstance(entry, JobExited)]
    outcomes = [entry.outcome for entry in entries]
    assert outcomes.count(Outcome.MOVED_OUT) == 1
    assert outcomes.count(Outcome.COMPLETED) == 5
    (moved,) = [entry for entry in entries if entry.outcome is Outcome.MOVED_OUT]
    assert "it handles signals" in moved.reason
    assert done.job(moved.job)["attempts"] == 2
    assert not started(done.folder)[moved.job, 2].fused


@pytest.mark.slow
def test_kill_minus_nine_of_a_shared_process_repeats_only_those_in_it(tmp_path: Path) -> None:
    job = sweep("--epochs=20", "--ms=5", grid={"lr": [0.1, 0.05, 0.02, 0.01, 0.005, 0.002]}, metric=PRINTED)
    job["sweep"]["parallel"] = 2
    path = job_file(tmp_path, job)
    process = start(path)
    latest = tmp_path / "ecoshare-runs" / "latest"
    pids: set[int] = set()

    def both_train_in_one_process() -> bool:
        try:
            table = LaneTable(Path(json.loads((latest / "environment.json").read_text())["shared"]) / "lane0")
        except (OSError, ValueError, KeyError):
            return False
        both = [slot.pid for slot in table.slots if slot.fused and slot.iterations > 20]
        table.close()
        pids.update(both)
        return len(both) == 2 and len(set(both)) == 1

    wait_for(both_train_in_one_process)
    os.kill(pids.pop(), signal.SIGKILL)
    stdout, stderr = process.communicate()
    summary = json.loads(stdout)
    attempts = {each["name"]: each["attempts"] for each in summary["jobs"]}
    states = [each["state"] for each in summary["jobs"]]
    assert states == ["completed"] * 6, stderr
    assert sorted(attempts.values()) == [1, 1, 1, 1, 2, 2]
    ends = [entry for entry in event_log.read(latest / "events.jsonl") if isinstance(entry, JobExited)]
    (moved,) = [entry for entry in ends if entry.outcome is Outcome.MOVED_OUT]
    assert "SIGKILL" in moved.reason
    (lost,) = [entry for entry in ends if entry.outcome is Outcome.LOST]
    assert lost.reason == f"the process that it shared died of {moved.job}"


@pytest.mark.nightly
def test_a_killed_run_of_shared_processes_goes_on(tmp_path: Path) -> None:
    job = sweep("--epochs=4", "--ms=10", random={"lr": {"log": [1e-4, 0.2]}}, trials=12, metric=PRINTED)
    path = job_file(tmp_path, job)
    process = start(path)
    latest = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: len(list(latest.glob("jobs/*/exit-1.json"))) >= 5)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    time.sleep(1.5)
    before = {path.parent.name for path in latest.glob("jobs/*/exit-1.json")}
    done = resume(latest)
    assert done.code == 0, done.stderr
    assert {each["state"] for each in done.summary["jobs"]} == {"completed"}
    assert not [name for name in before if (latest / "jobs" / name / "exit-2.json").exists()]
