"""`scripts/demo` looks before it installs; the end of `--devices cpu/2` says what the run shows, by its own record."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import demo_devices
from scripts.bench.gang_turns import turns
from tests.runtime.running import EXAMPLES, run, slow_steps
from tests.warm import ROOT


def test_the_demo_says_what_is_in_its_way_before_it_installs(tmp_path: Path) -> None:
    """Else a user waits for an installation of a minute, and is then told that it was for nothing."""
    tree, tools, state = (tmp_path / name for name in ("tree", "tools", "state"))
    for folder in (tree / "scripts", tools, state):
        folder.mkdir(parents=True)
    for name in ("demo", "setup"):
        shutil.copy(ROOT / "scripts" / name, tree / "scripts")
    old = tools / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
    old.chmod(0o755)
    record = state / "ecoshare-cpu.0123.run"
    record.write_text('{"pid": 1, "run": "/somewhere/runs/first", "processors": []}')
    with record.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = subprocess.run(
            [str(tree / "scripts" / "demo")],
            env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "ECOSHARE_STATE": str(state)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 4 and not (tree / ".venv").exists()
    assert "note: another run uses a device of this machine: /somewhere/runs/first" in done.stderr
    assert "error: ecoshare needs Python 3.11 or newer as python3; this is Python 3.9.1\nhint: " in done.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="this is no checkout")
def test_git_ignores_what_the_demo_writes() -> None:
    line = ["git", "check-ignore", "runs/latest", "runs/20260101-100000-jobs/plan.json", "profiles/iterations/a.json"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == line[2:]


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_the_demo_names_jobs_joules_and_turns_of_each_device(tmp_path: Path) -> None:
    gang = {"script": str(EXAMPLES / "ddp.py"), "args": ["--epochs", "2"], "gpus": 2, "launch": "ranks"}
    jobs = [{"name": name, **gang} for name in ("ddp", "again")]
    done = run(tmp_path, *jobs, slow_steps("beside", 100, 10), options=("--device", "cpu/2"))
    assert done.code == 0, done.stderr
    assert done.log("ddp") == done.log("again") and b"epoch  2  train loss" in done.log("ddp")
    found = [turns(done.folder / "jobs" / name) for name in ("ddp", "again")]
    assert sum(len(each.iterations) for each in found) > 2, "the gangs took turns"
    assert all(each.together == len(each.iterations) for each in found)

    lines = demo_devices.shown(done.folder, done.summary)
    energies = [*(each["energy"] for each in done.summary["devices"]), done.summary["energy"]]
    first, second, both = map(demo_devices.joules, energies)
    assert lines[1].startswith("  cpu:0: ddp, again") and lines[1].endswith(f"; {first}")
    assert lines[2].startswith("  cpu:1: ddp, again") and lines[2].endswith(f"; {second}")
    assert ", beside" in lines[1] + lines[2] and first.endswith(" modelled")
    assert lines[3] == f"  all devices: {both}, the sum"
    count = len(found[0].iterations)
    assert f"ddp: 2 ranks on cpu:0 and cpu:1 had {count} turns" in lines[4]
    assert f"ended {count} of them after the same iteration" in lines[4]
    assert lines[-1].endswith("/report.html")
