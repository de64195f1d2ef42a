"""Live runs in which a preemptible job moves to a device that has become idle, on partitions of the processors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.commands import KillJob, StartJob
from ecoshare.core.events import JobExited
from ecoshare.record import event_log
from tests.runtime.running import SCRIPTS, run
from tests.warm import ecoshare

SCRIPT = SCRIPTS / "checkpoint_resume.py"
LONG, SHORT = 450, 30

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")


def saves(folder: Path, name: str, steps: int) -> dict[str, Any]:
    """A job that saves its state on SIGTERM."""
    given = ["--steps", steps, "--step-ms", 20, "--checkpoint", str(folder / f"{name}.pt")]
    keys = {"script": str(SCRIPT), "args": given, "iterations": steps, "resume_args": ["--resume"]}
    return {"name": name, "preemptible": True, **keys}


def losses(*outputs: bytes) -> dict[int, str]:
    """Loss of each step, from the output of all attempts."""
    lines = [line.split() for output in outputs for line in output.decode().splitlines()]
    return {int(line[0]): line[1] for line in lines if line and line[0].isdecimal()}


@pytest.mark.nightly
@needs_two
def test_one_of_two_long_jobs_moves_when_the_short_one_has_ended(tmp_path: Path) -> None:
    jobs = [saves(tmp_path, name, steps) for name, steps in (("a", LONG), ("short", SHORT), ("c", LONG))]
    done = run(tmp_path, *jobs, options=("--device", "cpu/2"))
    assert done.code == 0, done.stderr
    entries = list(event_log.read(done.folder / "events.jsonl"))
    (kill,) = [each for each in entries if isinstance(each, KillJob)]
    assert kill.job in ("a", "c") and kill.reason == "moves to cpu:1, which is idle"
    starts = [each for each in entries if isinstance(each, StartJob)]
    assert [(each.job, each.attempt) for each in starts[:3]] == [("a", 1), ("short", 1), ("c", 1)]
    assert [(each.job, each.attempt) for each in starts[3:]] == [(kill.job, 2)]
    assert starts[0].lanes == starts[2].lanes != starts[1].lanes == starts[3].lanes
    first_exit = next(each for each in entries if isinstance(each, JobExited))
    assert first_exit.job == "short"

    other = tmp_path / "alone.pt"
    line = [sys.executable, str(SCRIPT), "--steps", str(LONG), "--step-ms", "0", "--checkpoint", str(other)]
    alone = subprocess.run(line, capture_output=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert len(losses(alone.stdout)) == LONG
    for name in ("a", "c"):
        attempts = sorted((done.folder / "jobs" / name).glob("stdout*.log"), reverse=True)
        assert losses(*(path.read_bytes() for path in attempts)) == losses(alone.stdout)
    told = ecoshare("explain", done.folder, kill.job).stdout
    assert "moves to cpu:1, which is idle" in told
