"""The log of a queue begins anew now and then: jobs go on, ended ones are found, and a kill loses nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ecoshare.core.events import JobArrived, JobExited, RunOpened
from ecoshare.core.records import JobState
from ecoshare.record import event_log
from ecoshare.record.run_data import is_live, read
from ecoshare.record.run_folder import RunFolder
from tests.queue.queues import Served, check_replay, served
from tests.warm import Started, ecoshare, wait_for

ONCE = (
    "import sys\nwith open(sys.argv[1], 'a') as told:\n    print(sys.argv[2], file=told)\nprint('said', sys.argv[2])\n"
)
LANES = ("--lanes", "3", "--jobs-per-lane", "1")
SHORT = 2000
"""Size (bytes) of a segment: each job writes about a thousand."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    (tmp_path / "once.py").write_text(ONCE)
    return tmp_path


def jobs(up: Served, *names: str, **options: object) -> None:
    """Submit jobs that tell once that they ran."""
    listed = [{"name": name, "script": "once.py", "args": [str(up.folder / "told"), name], **options} for name in names]
    (up.folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": listed}))
    assert up.lines("submit", "jobs.yaml") == list(names)


def told(folder: Path) -> Counter[str]:
    return Counter((folder / "told").read_text().split())


def begun(up: Served) -> int:
    """Number of segments that the log of the queue has before the present one."""
    return len(event_log.segments(up.run / "events.jsonl"))


@pytest.mark.nightly
def test_jobs_go_on_and_ended_ones_are_found(folder: Path) -> None:
    with served(folder, *LANES, segment_bytes=SHORT) as up:
        go = up.waits("long")
        up.begun("long")
        follows = Started("logs", "--queue", "test", "-f", "long", cwd=folder)
        jobs(up, "first", on_end=["true"])
        up.lines("wait", "first")
        jobs(up, "held", after=["long"])
        up.lines("hold", "held")
        for number in range(6):
            jobs(up, f"job-{number}", after=["first"])
        assert up.ask("wait", *(f"job-{number}" for number in range(6))).returncode == 0
        wait_for(lambda: begun(up) >= 2, otherwise=lambda: up.process.stderr)
        assert is_live(RunFolder(up.run)), "the new file of the log is locked, too"
        assert up.lines("logs", "first") == ["said first"] and up.ask("wait", "first").returncode == 0
        assert up.queue.job("first").state == "completed" and up.queue.job("long").state == "running"
        jobs(up, "late", after=["first", "long"])
        explained = ecoshare("explain", str(up.run), "first", cwd=folder)
        assert explained.returncode == 0 and "completed" in explained.stdout, explained.stderr
        assert "has ended already" in up.ask("cancel", "first").stderr
        assert up.queue.job("held").state == "held"
        go.touch()
        up.lines("release", "held")
        assert [job.state for job in up.queue.wait("long", "late", "held")] == ["completed"] * 3
        assert follows.wait(30) == 0 and follows.stdout.splitlines() == ["begun", "went"]
        assert up.ask("down").returncode == 0 and up.process.wait(30) == 0
    check_replay(up.run)
    names = {"long", "first", "held", "late", *(f"job-{number}" for number in range(6))}
    entries = list(event_log.read(up.run / "events.jsonl"))
    assert Counter(each.job.name for each in entries if isinstance(each, JobArrived)) == dict.fromkeys(names, 1)
    openings = [each for each in entries if isinstance(each, RunOpened)]
    assert openings[0].segment is None and all(each.segment is not None for each in openings[1:]) and len(openings) > 2
    assert "first" not in {job.spec.name for each in openings[1:] if each.segment for job in each.segment.jobs}
    data = read(RunFolder(up.run))
    assert {job.name: job.state for job in data.summary.jobs} == dict.fromkeys(names, JobState.COMPLETED.value)
    (attempt,) = [each for each in data.history.attempts if each.job == "long"]
    assert attempt.outcome is not None and attempt.outcome.value == "completed", "a segment is no interruption"
    assert any("long" in each.jobs and each.to_s is not None for each in data.history.packings().stretches)
    exported = ecoshare("export", str(up.run), "--format", "csv", cwd=folder)
    assert exported.returncode == 0 and "late" in exported.stdout, exported.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_kill_while_a_segment_begins_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setenv("KILLED_AT", "2")
    monkeypatch.setenv("KILLED_WHEN", when)
    with served(folder, *LANES, segment_bytes=SHORT) as up:
        go = up.waits("long")
        up.begun("long")
        for number in range(20):
            if up.process.poll() is None:
                up.ask("submit", "once.py", "--name", f"job-{number}", "--", str(folder / "told"), f"job-{number}")
        wait_for(lambda: up.process.poll() is not None, otherwise=lambda: up.process.stderr)
        assert begun(up) == (1 if when == "before" else 2)
    monkeypatch.delenv("KILLED_AT")
    with served(folder, *LANES, "--resume", segment_bytes=SHORT) as again:
        go.touch()
        kept = [job.name for job in again.queue.status(100).jobs]
        assert {job.state for job in again.queue.wait(*kept)} == {"completed"}
        assert again.queue.job("long").attempts == 2
        assert again.ask("down").returncode == 0
    assert set(kept) == {"long", *told(folder)}, "each job that was acknowledged has run"
    exits = Counter(
        (each.job, each.outcome.value)
        for each in event_log.read(again.run / "events.jsonl")
        if isinstance(each, JobExited) and each.outcome.value == "completed"
    )
    assert set(exits.values()) == {1}, "nothing that ended ran again"
    check_replay(again.run)
    assert not list(again.run.glob("*.next")) and begun(again) >= 2


@pytest.mark.nightly
def test_failures_of_earlier_segments_count_after_a_kill(folder: Path) -> None:
    """A job with a retry that failed in an earlier segment has failed for good at its next failure."""
    fails = "import os, sys, time\nfrom pathlib import Path\nPath(sys.argv[1]).touch()\n"
    fails += "attempt = int(os.environ['ECOSHARE_ATTEMPT'])\nwhile attempt == 2: time.sleep(0.1)\nsys.exit(3)\n"
    (folder / "fails.py").write_text(fails)
    with served(folder, *LANES, segment_bytes=SHORT) as up:
        job = {"name": "fails", "script": "fails.py", "args": ["seen"], "retries": 1}
        (folder / "fails.yaml").write_text(json.dumps({"version": 1, "jobs": [job]}))
        up.lines("submit", "fails.yaml")
        wait_for(lambda: up.queue.job("fails").attempts == 2, otherwise=lambda: up.process.stderr)
        for number in range(6):
            jobs(up, f"job-{number}")
            up.lines("wait", f"job-{number}")
        assert begun(up) >= 1
        last = next(iter(event_log.read(up.run / "events.jsonl", last=True)))
        assert isinstance(last, RunOpened) and last.segment is not None
        assert ("fails", 2, 1) in [(each.spec.name, each.attempt, each.failures) for each in last.segment.jobs]
        up.kill()
    with served(folder, *LANES, "--resume") as again:
        (ended,) = again.queue.wait("fails")
        assert ended.state == "failed" and ended.attempts == 3, "the attempt that was cut off is no failure"
        again.lines("down")
    check_replay(again.run)
    assert (folder / "seen").exists()


@pytest.mark.nightly
def test_data_of_jobs_that_ended_long_ago_are_removed(folder: Path) -> None:
    with served(folder, *LANES, segment_bytes=SHORT) as up:
        go = up.waits("needed")
        jobs(up, "held", after=["needed"])
        up.lines("hold", "held")
        go.touch()
        up.lines("wait", "needed")
        for number in range(8):
            jobs(up, f"job-{number}")
            up.lines("wait", f"job-{number}")
        wait_for(lambda: begun(up) >= 2, otherwise=lambda: up.process.stderr)
        assert up.ask("down").returncode == 0 and up.process.wait(30) == 0
    first_bytes = (up.run / "submitted.jsonl").stat().st_size
    with served(folder, *LANES, "--resume", "--keep", "30d") as kept:
        assert kept.queue.job("job-0").state == "completed" and begun(kept) >= 2, "nothing is that old"
        kept.lines("down")
        kept.process.wait(30)
    with served(folder, *LANES, "--resume", "--keep", "1s") as again:
        wait_for(lambda: begun(again) == 0, otherwise=lambda: again.process.stderr)
        wait_for(lambda: "has no job" in again.ask("status", "job-0").stderr)
        assert not (again.run / "jobs" / "job-0").exists()
        assert again.queue.job("needed").state == "completed", "the job that is left names it"
        assert (again.run / "submitted.jsonl").stat().st_size < first_bytes
        again.lines("release", "held")
        assert again.queue.wait("held")[0].state == "completed"
        explained = ecoshare("explain", str(again.run), cwd=folder)
        assert explained.returncode == 0 and "held" in explained.stdout, explained.stderr
        assert again.ask("down").returncode == 0 and again.process.wait(30) == 0
    check_replay(again.run)
    before = again.run.resolve()
    with served(folder, *LANES, "--keep", "1ms") as new:
        wait_for(lambda: not before.exists(), otherwise=lambda: new.process.stderr)
        assert new.run.resolve() != before and new.queue.status(100).jobs == []
    assert "expected an age" in ecoshare("up", "--name", "other", "--keep", "30", cwd=folder).stderr
