"""Parked jobs of whole runs on a fake GPU: the driver's checkpoint calls move memory that two jobs cannot share."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.commands import ParkJob, ResumeJob
from ecoshare.core.events import Parked, Refused
from ecoshare.record import event_log
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.checkpoints import NOT_READY, OUT_OF_MEMORY, Checkpoints, old_driver
from tests.driver.device_memory import DeviceMemory
from tests.driver.runs import OnGpu, run_on_gpu
from tests.driver.training import MIB, SCRIPT, Training
from tests.runtime.running import job_file, words
from tests.warm import ecoshare, wait_for

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
    pytest.mark.slow,
]

GIB = 1 << 30
DEVICE_BYTES = 2560 * MIB
LARGE = Training("large", 10, 0.5, 0.2, 1100 * MIB, 20 * MIB)
"""Training of which the GPU has room for one only: its context takes another 300 MiB."""

PARKS = ("--policy", "priority", "--jobs-per-lane", "1", "--host-memory", "2 GiB")


def gpu_of(folder: Path) -> tuple[FakeDriver, DeviceMemory]:
    """Driver with a second GPU of 2.5 GiB, and the memory of that GPU."""
    (folder / "trains.py").write_text(SCRIPT)
    driver = FakeDriver(folder, [presets.A4000, replace(presets.A4000, memory_bytes=DEVICE_BYTES)])
    return driver, DeviceMemory(f"{driver.environment['FAKE_NVML_STATE']}.memory1", DEVICE_BYTES)


def two_jobs(over: Path) -> list[dict[str, Any]]:
    """A job that trains until a file exists, and an urgent one that comes later."""
    args = [*LARGE.args(100_000), "--until", str(over)]
    urgent = {"name": "urgent", "script": "trains.py", "args": LARGE.args(60), "priority": 99, "arrival": "4 s"}
    return [{"name": "long", "script": "trains.py", "args": args}, urgent]


def ended(folder: Path, job: str) -> bool:
    """Whether a job of a run has an exit record."""
    return any((folder / "jobs" / job).glob("exit-*.json"))


def shared(folder: Path, driver: FakeDriver) -> OnGpu:
    """Run both jobs; the long one ends once the urgent one has ended and the other one has gone on."""
    over = folder / "over"

    def meanwhile(run: Path) -> None:
        wait_for(lambda: ended(run, "urgent"))
        over.touch()

    options = (*PARKS, "--no-profiles")
    return run_on_gpu(folder, driver, *two_jobs(over), options=options, meanwhile=meanwhile)


def entries(ran: OnGpu, kind: type) -> list[Any]:
    return [each for each in event_log.read(ran.done.folder / "events.jsonl") if isinstance(each, kind)]


def test_an_urgent_job_gets_the_memory_of_the_parked_one(tmp_path: Path) -> None:
    """Both together would need 2,840 of 2,560 MiB. A lane that synchronized a parked process would kill it."""
    driver, memory = gpu_of(tmp_path)
    ran = shared(tmp_path, driver)
    long, urgent = ran.done.job("long"), ran.done.job("urgent")
    assert (long["parks"], long["attempts"], long["state"]) == (1, 1, "completed")
    assert urgent["state"] == "completed" and urgent["finish_s"] < long["finish_s"]
    assert memory.refused == 0 and 1400 * MIB < memory.most_bytes < 1500 * MIB
    assert len(entries(ran, Parked)) == len(entries(ran, ResumeJob)) == 1


@pytest.mark.nightly
def test_memory_that_does_not_come_back_costs_its_own_job_an_attempt_only(tmp_path: Path) -> None:
    driver, _ = gpu_of(tmp_path)
    Checkpoints(driver).fail("Restore", OUT_OF_MEMORY, times=1)
    ran = shared(tmp_path, driver)
    assert (ran.done.job("long")["attempts"], ran.done.job("urgent")["attempts"]) == (2, 1)
    assert {job["state"] for job in ran.done.summary["jobs"]} == {"completed"}
    assert "its memory could not come back" in ran.done.stderr and "OUT_OF_MEMORY" in ran.done.stderr


@pytest.mark.nightly
def test_a_job_that_cannot_be_parked_runs_on(tmp_path: Path) -> None:
    """The urgent job then waits for its end."""
    driver, memory = gpu_of(tmp_path)
    Checkpoints(driver).fail("Lock", NOT_READY)
    over = tmp_path / "over"

    def meanwhile(run: Path) -> None:
        log = run / "events.jsonl"
        wait_for(lambda: log.exists() and any(isinstance(each, Refused) for each in event_log.read(log)))
        over.touch()

    ran = run_on_gpu(tmp_path, driver, *two_jobs(over), options=(*PARKS, "--no-profiles"), meanwhile=meanwhile)
    assert {(job["state"], job["attempts"], job["parks"]) for job in ran.done.summary["jobs"]} == {("completed", 1, 0)}
    assert len(entries(ran, ParkJob)) == 1, "it is not asked again"
    assert "long: is not parked" in ran.done.stderr and memory.refused == 0


def test_a_driver_that_is_too_old_is_said_before_anything_starts(tmp_path: Path) -> None:
    driver, _ = gpu_of(tmp_path)
    line = words(job_file(tmp_path, *two_jobs(tmp_path / "over")), "--device", "cuda:1", *PARKS)
    own = driver.environment
    libraries = os.pathsep.join([old_driver()["LD_LIBRARY_PATH"], own["LD_LIBRARY_PATH"]])
    done = ecoshare(*line, environment={**os.environ, **own, "LD_LIBRARY_PATH": libraries})
    assert done.returncode == 4 and "570" in done.stderr, done.stderr
    assert not (tmp_path / "ecoshare-runs").exists() and "Traceback" not in done.stderr


def test_the_plan_of_a_run_that_parks(tmp_path: Path) -> None:
    driver, _ = gpu_of(tmp_path)
    line = words(job_file(tmp_path, *two_jobs(tmp_path / "over")), "--device", "cuda:1", "--dry-run", *PARKS)
    done = ecoshare(*line, environment={**os.environ, **driver.environment})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["host_bytes"] == 2 * GIB
