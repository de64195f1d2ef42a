"""Memory of whole runs on a fake GPU that has one memory for all processes: contexts, allocators and their caches."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.commands import LimitMemory, SetCaching, StartJob
from ecoshare.core.events import Done, IterationsDone, MemoryLeft, SliceChanged
from ecoshare.record import event_log
from ecoshare.record.run_folder import RunFolder
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.device_memory import DeviceMemory
from tests.driver.runs import run_on_gpu
from tests.driver.training import COMPUTES, MIB, SCRIPT, WAITS, Training
from tests.warm import Started, ecoshare, wait_for

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
    pytest.mark.slow,
]

GIB = 1 << 30
LARGE = Training("large", 10, 0.5, 0.2, 724 * MIB, 5 * GIB)
"""Training of P = 1 GiB, its context included, and T = 5 GiB."""


def gpu_of(folder: Path, memory_bytes: int) -> tuple[FakeDriver, DeviceMemory]:
    """Driver with a second GPU of this size, and the memory of that GPU."""
    (folder / "trains.py").write_text(SCRIPT)
    driver = FakeDriver(folder, [presets.A4000, replace(presets.A4000, memory_bytes=memory_bytes)])
    return driver, DeviceMemory(f"{driver.environment['FAKE_NVML_STATE']}.memory1", memory_bytes)


def job(name: str, over: Path) -> dict[str, Any]:
    """Job that trains until a file exists. All of them are of one class."""
    return {"name": name, "script": "trains.py", "args": [*LARGE.args(100_000), "--until", str(over)]}


def has_taken_turns(folder: Path, count: int) -> bool:
    """Whether this many jobs of a run have had several turns."""
    log = folder / "events.jsonl"
    told = [each for each in event_log.read(log) if isinstance(each, IterationsDone)] if log.exists() else []
    return len({each.job for each in told if each.usage.handovers > 3}) == count


@pytest.mark.nightly
def test_three_caches_that_do_not_fit_share_one_ephemeral_region(tmp_path: Path) -> None:
    """Three jobs need 3 x 1 + 5 GiB. With their caches kept they would have 18 of 11 GiB, and one would fail."""
    driver, memory = gpu_of(tmp_path, 11 * GIB)
    over, profiles = tmp_path / "over", tmp_path / "profiles"
    args = job("", over)["args"]
    where = ["--device", "cuda:1", "--runs", "runs", "--profiles", str(profiles)]
    made = ecoshare("profile", "trains.py", *where, "--", *args, cwd=tmp_path, environment=driver.environment)
    assert made.returncode == 0, made.stderr

    def meanwhile(folder: Path) -> None:
        wait_for(lambda: has_taken_turns(folder, 3))
        over.touch()

    options = ("--policy", "fair", "--profiles", str(profiles))
    jobs = (job(name, over) for name in "abc")
    ran = run_on_gpu(tmp_path, driver, *jobs, options=options, meanwhile=meanwhile)
    commands = list(event_log.read(ran.done.folder / "events.jsonl"))
    starts = [entry for entry in commands if isinstance(entry, StartJob)]
    assert [(each.job, each.attempt) for each in starts] == [("a", 1), ("b", 1), ("c", 1)], "no job began again"
    assert next(entry.is_kept for entry in commands if isinstance(entry, SetCaching)) is False
    assert memory.refused == 0 and memory.most_bytes <= 11 * GIB
    assert all(each["state"] == "completed" for each in ran.done.summary["jobs"])


@pytest.mark.nightly
def test_a_measured_job_is_limited_before_another_one_gets_the_rest(tmp_path: Path) -> None:
    """A job of an unseen class may take the whole GPU; another one starts only once its allocator is limited."""
    driver, memory = gpu_of(tmp_path, 12 * GIB)
    over = tmp_path / "over"
    jobs = [{**job(name, over), "class": name} for name in "ab"]
    jobs[1] |= {"script": "computes.py", "args": [*COMPUTES.args(100_000), "--until", str(over)]}
    (tmp_path / "computes.py").write_text(SCRIPT)  # classes of one script would be taken for equally large

    def both_run(folder: Path) -> bool:
        log = folder / "events.jsonl"
        told = [each for each in event_log.read(log) if isinstance(each, IterationsDone)] if log.exists() else []
        return {each.job for each in told} == {"a", "b"}

    def meanwhile(folder: Path) -> None:
        wait_for(lambda: both_run(folder))
        over.touch()

    options = ("--policy", "jct", "--lanes", "2", "--profiles", str(tmp_path / "profiles"))
    ran = run_on_gpu(tmp_path, driver, *jobs, options=options, meanwhile=meanwhile)
    entries = list(event_log.read(ran.done.folder / "events.jsonl"))
    second = next(entry for entry in entries if isinstance(entry, StartJob) and entry.job == "b")
    limit = next(entry for entry in entries if isinstance(entry, LimitMemory) and entry.job == "a")
    answers = {each.command: place for place, each in enumerate(entries) if isinstance(each, Done)}
    assert entries.index(limit) < entries.index(second), "the core asks for the room first"
    assert answers[limit.id] < answers[second.id], "and the process of the second job begins after the answer"
    assert limit.cap_bytes < 12 * GIB and memory.refused == 0
    assert all(each["state"] == "completed" for each in ran.done.summary["jobs"])


def test_two_runs_share_the_memory_of_a_gpu_and_take_turns(tmp_path: Path) -> None:
    """The first run has a job that goes on, and leaves the memory that it does not use; a job of 9 GiB waits for it."""
    driver, memory = gpu_of(tmp_path, 12 * GIB)
    over, folders = tmp_path / "over", [tmp_path / name for name in ("first", "second")]
    environment = {**os.environ, **driver.environment, "CUDA_VISIBLE_DEVICES": "1"}
    large = replace(COMPUTES, name="large", kept_bytes=8 * GIB)

    def started(folder: Path, *jobs: dict[str, Any]) -> Started:
        folder.mkdir()
        (folder / "trains.py").write_text(SCRIPT)
        (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": jobs}))
        options = ("--device", "cuda:0", "--control", "off", "--policy", "fair", "--no-profiles", "--json")
        return Started("run", "jobs.yaml", *options, cwd=folder, environment=environment)

    first = started(folders[0], COMPUTES.job(100_000, "--until", str(over)))
    log = folders[0] / "ecoshare-runs/latest/events.jsonl"
    wait_for(lambda: log.exists() and has_done(log, "computes"), otherwise=lambda: first.stderr)
    second = started(folders[1], WAITS.job(40), large.job(20))
    small = folders[1] / "ecoshare-runs/latest/jobs/waits"
    wait_for(lambda: any(small.glob("exit-*.json")), otherwise=lambda: second.stderr)
    over.touch()
    assert first.wait() == 0 and second.wait() == 0, (first.stderr, second.stderr)
    assert "takes turns on cuda:0 with the run" in second.stderr
    assert memory.refused == 0 and memory.most_bytes <= 12 * GIB
    for folder, names in zip(folders, (("computes",), ("waits", "large")), strict=True):
        path = RunFolder(folder / "ecoshare-runs/latest").events
        entries = list(event_log.read(path))
        assert any(isinstance(each, MemoryLeft) and each.others == 1 for each in entries)
        assert any(isinstance(each, SliceChanged) and each.others == 1 for each in entries)
        starts = [(each.job, each.attempt) for each in entries if isinstance(each, StartJob)]
        assert starts[0] == (names[0], 1) and {job for job, _ in starts} == set(names)
        assert all(now[: len(logged)] == logged for _, logged, now in event_log.replay(event_log.read(path)))


def has_done(log: Path, job: str) -> bool:
    """Whether a job of a run has done iterations."""
    return any(isinstance(each, IterationsDone) and each.job == job for each in event_log.read(log))
