"""Runs in which jobs are parked or stopped for jobs ahead of them, on processors, with real processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base import machine_memory
from ecoshare.core.commands import KillJob, ParkJob
from ecoshare.core.events import Parked, Resumed
from ecoshare.record import event_log
from ecoshare.record.log_fold import LogEntry
from ecoshare.runtime.nodes import cleanup
from tests.runtime.running import SCRIPTS, Finished, alone, job_file, parent, resume, run, slow_steps, start, words
from tests.warm import ecoshare, wait_for

PARKS = ("--policy", "priority", "--jobs-per-lane", "1", "--host-memory", "2 GiB")
LONG, SHORT = 300, 60


def jobs(arrival_s: float = 3.0) -> list[dict[str, Any]]:
    """A long job in the only place, and a short one of high priority that comes later."""
    return [slow_steps("long", LONG), slow_steps("urgent", SHORT, priority=99, arrival=f"{arrival_s} s")]


def entries(folder: Path) -> Iterator[LogEntry]:
    return event_log.read(folder / "ecoshare-runs/latest/events.jsonl")


def is_parked(folder: Path) -> bool:
    """Whether a job of the run has been parked."""
    log = folder / "ecoshare-runs/latest/events.jsonl"
    return log.exists() and any(isinstance(each, Parked) for each in event_log.read(log))


def gone(folder: Path) -> bool:
    """Whether no process of the run is left."""
    token = json.loads((folder / "ecoshare-runs/latest/environment.json").read_text())["token"]
    return not cleanup.members(token)


@pytest.mark.nightly
def test_an_urgent_job_runs_at_once_and_the_parked_one_prints_the_same_bits(tmp_path: Path) -> None:
    done = run(tmp_path, *jobs(), options=PARKS)
    assert done.code == 0, done.stderr
    long, urgent = done.job("long"), done.job("urgent")
    assert urgent["finish_s"] < long["finish_s"] and urgent["queue_s"] < 0.5 * long["jct_s"]
    assert (long["parks"], long["attempts"], urgent["parks"]) == (1, 1, 0)
    assert long["parked_s"] >= 0.9 * (urgent["finish_s"] - urgent["start_s"])
    for name, steps in (("long", LONG), ("urgent", SHORT)):
        script = SCRIPTS / "slow_steps.py"
        assert done.log(name) == alone(script, ("--steps", str(steps), "--ms", "20"), tmp_path)[1]
    assert "parked for other jobs: long 1 time for" in ecoshare("run", "--resume", done.folder, "--no-report").stdout
    told = ecoshare("explain", done.folder, "long").stdout
    assert "parked, with its memory on the host: all places were taken (by urgent)" in told
    assert "long: parked" in done.stderr and "long: goes on" in done.stderr
    pictures = ecoshare("export", done.folder, "--format", "html", "--output", tmp_path / "report.html")
    assert pictures.returncode == 0, pictures.stderr


@pytest.mark.nightly
def test_jobs_of_equal_rank_take_turns_in_the_place(tmp_path: Path) -> None:
    three = [slow_steps(name, 400) for name in "abc"]
    done = run(tmp_path, *three, options=("--policy", "fair", "--jobs-per-lane", "2", "--host-memory", "2 GiB"))
    assert done.code == 0, done.stderr
    assert sum(done.job(name)["parks"] for name in "abc"), "however late one of them begins on a busy machine"
    outputs = {done.log(name) for name in "abc"}
    assert outputs == {alone(SCRIPTS / "slow_steps.py", ("--steps", "400", "--ms", "20"), tmp_path)[1]}


@pytest.mark.nightly
def test_a_killed_controller_leaves_no_parked_process(tmp_path: Path) -> None:
    process = start(job_file(tmp_path, *jobs()), *PARKS, new_session=True)
    wait_for(lambda: is_parked(tmp_path))
    process.kill()
    process.wait()
    wait_for(lambda: gone(tmp_path))
    resumed = resume(tmp_path / "ecoshare-runs/latest")
    assert resumed.code == 0, resumed.stderr
    assert {job["state"] for job in resumed.summary["jobs"]} == {"completed"}


@pytest.mark.nightly
def test_a_killed_server_takes_the_parked_job_with_it_and_all_run_again(tmp_path: Path) -> None:
    process = start(job_file(tmp_path, *jobs()), *PARKS, new_session=True)
    wait_for(lambda: is_parked(tmp_path))
    token = json.loads((tmp_path / "ecoshare-runs/latest/environment.json").read_text())["token"]
    members = cleanup.members(token)
    (server,) = [pid for pid in members if parent(pid) not in members]
    os.kill(server, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert {(job["name"], job["attempts"]) for job in json.loads(stdout)["jobs"]} == {("long", 2), ("urgent", 2)}


@pytest.mark.nightly
def test_ctrl_c_ends_parked_jobs_too(tmp_path: Path) -> None:
    process = start(job_file(tmp_path, *jobs()), *PARKS, new_session=True)
    wait_for(lambda: is_parked(tmp_path))
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in stderr, stderr
    assert {job["state"] for job in json.loads(stdout)["jobs"]} <= {"cancelled", "completed"}
    assert gone(tmp_path)


@pytest.mark.nightly
def test_a_preemptible_job_saves_its_state_and_goes_on_later(tmp_path: Path) -> None:
    """No host memory is given: the script's own checkpoint serves."""
    saves = {
        "name": "saves",
        "script": str(SCRIPTS / "checkpoint_resume.py"),
        "args": ["--steps", "300", "--step-ms", "20"],
        "cwd": str(tmp_path),
        "resume_args": ["--resume"],
        "preemptible": True,
    }
    urgent = slow_steps("urgent", SHORT, priority=99, arrival="4 s")
    done = run(tmp_path, saves, urgent, options=("--policy", "priority", "--jobs-per-lane", "1"))
    assert done.code == 0, done.stderr
    assert done.job("urgent")["finish_s"] < done.job("saves")["finish_s"]
    assert (done.job("saves")["attempts"], done.job("saves")["parks"]) == (2, 0)
    assert [each.job for each in entries(tmp_path) if isinstance(each, KillJob)] == ["saves"]
    assert not any(isinstance(each, ParkJob | Parked | Resumed) for each in entries(tmp_path))


@pytest.mark.slow
def test_the_plan_says_which_jobs_keep_their_places(tmp_path: Path) -> None:
    two = [slow_steps("a", 5), slow_steps("b", 5, preemptible=True)]
    line = [*words(job_file(tmp_path, *two)), "--policy", "priority", "--jobs-per-lane", "1", "--dry-run"]
    told = ecoshare(*line).stderr
    assert "policy priority: a keep their places once they run" in told or "a keeps its place" in told
    told = ecoshare(*[word if word != "priority" else "energy" for word in line]).stderr
    assert "policy energy stops no job for another one, so `preemptible` has no effect" in told
    if len(os.sched_getaffinity(0)) > 1:
        line[line.index("--device") + 1] = "cpu/2"
        told = ecoshare(*[word if word != "priority" else "energy" for word in line]).stderr
        assert "so `preemptible` only lets jobs move to idle devices" in told


def wrong(folder: Path, *options: str) -> Finished:
    """Result of a run with wrong options; nothing may have been started."""
    done = ecoshare(*words(job_file(folder, slow_steps("a", 5)), *options))
    assert not (folder / "ecoshare-runs").exists() and "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == 1, done.stderr
    return Finished(done.returncode, done.stdout, done.stderr, folder)


def test_more_host_memory_than_the_machine_has(tmp_path: Path) -> None:
    size = f"{machine_memory.total_bytes() + machine_memory.free_swap_bytes() + (1 << 40)} B"
    done = wrong(tmp_path, "--policy", "fair", "--host-memory", size)
    assert done.code == 4 and "this machine has" in done.stderr


def test_more_memory_for_both_than_the_machine_has(tmp_path: Path) -> None:
    half = f"{int(0.7 * machine_memory.available_bytes()) + machine_memory.free_swap_bytes()} B"
    done = wrong(tmp_path, "--policy", "fair", "--memory", half, "--host-memory", half)
    assert done.code == 4 and "--memory" in done.stderr and "in all" in done.stderr


@pytest.mark.parametrize("size", ["4 gigs", "-1 GiB", "much"])
def test_a_size_that_is_none(tmp_path: Path, size: str) -> None:
    done = wrong(tmp_path, "--policy", "fair", "--host-memory", size)
    assert done.code == 2 and f"--host-memory {size}" in done.stderr


def test_a_policy_that_parks_no_job(tmp_path: Path) -> None:
    done = wrong(tmp_path, "--policy", "energy", "--host-memory", "1 GiB")
    assert done.code == 2 and "policy energy parks no job" in done.stderr
