"""Runs real job files through the real command line, and scripts alone to compare with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "scripts"
EXAMPLES = ROOT / "examples"
ECOSHARE = [sys.executable, "-m", "ecoshare"]

SLEEPS = """
import sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
print(loss.item())
"""
"""A script that trains for so many steps, and sleeps most of the time."""


@dataclass
class Finished:
    """A run of the command line that is over."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        """What it printed with `--json`."""
        summary: dict[str, Any] = json.loads(self.stdout)
        return summary

    def job(self, name: str) -> dict[str, Any]:
        """One job of the summary."""
        return next(job for job in self.summary["jobs"] if job["name"] == name)

    def log(self, name: str, stream: str = "stdout") -> bytes:
        """What a job wrote."""
        return (self.folder / "jobs" / name / f"{stream}.log").read_bytes()


def job_file(folder: Path, *jobs: dict[str, Any]) -> Path:
    """Write a job file; JSON is YAML."""
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"version": 1, "jobs": list(jobs)}))
    return path


def command(path: Path, *options: str) -> list[str]:
    """The command line that runs a job file with its run folder beside it.

    In turns in one lane, and with profiles, only where options say otherwise: who shares is decided the same way then,
    however fast this machine is.
    """
    line = [*ECOSHARE, "run", str(path), "--device", "cpu", "--runs", str(path.parent / "runs"), "--json", *options]
    line.append("--no-report")
    if not {"--policy", "--objective"} & set(options):
        line += ["--policy", "fair"]
    return line if "--profiles" in options else [*line, "--no-profiles"]


def run(folder: Path, *jobs: dict[str, Any], options: tuple[str, ...] = (), **environment: str) -> Finished:
    """Run jobs to their end."""
    path = job_file(folder, *jobs)
    done = subprocess.run(
        command(path, *options),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Finished(done.returncode, done.stdout, done.stderr, folder / "runs" / "latest")


def slow_steps(name: str, steps: int, milliseconds: int = 20, **keys: Any) -> dict[str, Any]:
    """A job that trains for about so long."""
    args = ["--steps", str(steps), "--ms", str(milliseconds), *keys.pop("args", [])]
    return {"name": name, "script": str(SCRIPTS / "slow_steps.py"), "args": args, **keys}


def copy_of_scripts(folder: Path) -> Path:
    """A copy of the test scripts, for those that write beside themselves."""
    target = folder / "scripts"
    shutil.copytree(SCRIPTS, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def alone(script: Path, args: tuple[str, ...], cwd: Path, **environment: str) -> tuple[int, bytes]:
    """Exit code and stdout of `python script args` by itself."""
    done = subprocess.run(
        [sys.executable, str(script), *args],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout


def settled(script: Path, args: tuple[str, ...], cwd: Path) -> bytes:
    """Stdout of `python script args` as two runs have it: torch's first calls may race (`lane/first_calls.py`)."""
    seen: list[bytes] = []
    while len(seen) < 5:
        code, stdout = alone(script, args, cwd)
        assert code == 0
        if stdout in seen:
            return stdout
        seen.append(stdout)
    raise AssertionError(f"{script} never prints the same twice")
