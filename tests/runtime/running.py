"""Runs of real job files through the real command line, and of scripts alone for comparison."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ecoshare.base.disk import atomic_write
from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobExited, Refused, RunOpened
from ecoshare.record import event_log
from ecoshare.runtime.nodes.warm_server import SPIN_COUNT
from tests.rounds import is_nightly
from tests.warm import ROOT, Started, ecoshare, fork_script

SCRIPTS = ROOT / "tests" / "scripts"
EXAMPLES = ROOT / "examples"

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
"""Script that trains for a number of steps, and sleeps most of the time."""


@dataclass
class Finished:
    """Finished run of the command line."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        """Output of `--json`."""
        summary: dict[str, Any] = json.loads(self.stdout)
        return summary

    def job(self, name: str) -> dict[str, Any]:
        """Job of the summary."""
        return next(job for job in self.summary["jobs"] if job["name"] == name)

    def log(self, name: str, stream: str = "stdout") -> bytes:
        """Output of a job."""
        return (self.folder / "jobs" / name / f"{stream}.log").read_bytes()


def job_file(folder: Path, *jobs: dict[str, Any]) -> Path:
    """Write a job file; JSON is YAML."""
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"version": 1, "jobs": list(jobs)}))
    return path


def words(path: Path, *options: str) -> list[str]:
    """Words after `ecoshare` that run a job file with its run folder beside it.

    Jobs take turns in one lane without profiles unless options say otherwise, so that the speed of this machine does
    not change the decisions.
    """
    line = ["run", str(path), "--device", "cpu", "--runs", str(path.parent / "ecoshare-runs"), "--json", *options]
    line.append("--no-report")
    if not {"--policy", "--objective"} & set(options):
        line += ["--policy", "fair"]
    return line if "--profiles" in options else [*line, "--no-profiles"]


def start(path: Path, *options: str, new_session: bool = False, cold: bool = False) -> Started:
    """Start a run of a job file."""
    return Started(*words(path, *options), new_session=new_session, cold=cold)


def run(folder: Path, *jobs: dict[str, Any], options: tuple[str, ...] = (), **environment: str) -> Finished:
    """Run jobs to their end, and check the run."""
    path = job_file(folder, *jobs)
    done = ecoshare(*words(path, *options), environment={**os.environ, **environment})
    assert "Traceback" not in done.stderr, done.stderr
    check(folder / "ecoshare-runs" / "latest")
    return Finished(done.returncode, done.stdout, done.stderr, folder / "ecoshare-runs" / "latest")


def resume(folder: Path, *options: str, forged: bool = False) -> Finished:
    """Resume an interrupted run; one with a `forged` log cannot replay."""
    done = ecoshare("run", "--resume", folder, "--json", "--no-report", *options)
    assert "Traceback" not in done.stderr, done.stderr
    if not forged:
        check(folder)
    return Finished(done.returncode, done.stdout, done.stderr, folder)


def check(folder: Path) -> None:
    """Check a finished run: its log replays, each attempt ended once, and its joules and the times of jobs add up."""
    entries = list(event_log.read(folder / "events.jsonl"))
    for event, logged, now in event_log.replay(iter(entries)):
        assert logged == now, event
    open_attempts: dict[int, tuple[str, int]] = {}
    for entry in entries:
        match entry:
            case RunOpened():  # attempts of a session before were lost with it
                open_attempts.clear()
            case StartJob():
                open_attempts[entry.id] = (entry.job, entry.attempt)
            case Refused():
                open_attempts.pop(entry.command, None)
            case JobExited():
                (command,) = [id for id, each in open_attempts.items() if each == (entry.job, entry.attempt)]
                del open_attempts[command]
    assert not open_attempts
    summary = json.loads((folder / "summary.json").read_text())
    if summary["energy"] is not None:
        jobs_j = [job["energy"]["value_j"] for job in summary["jobs"] if job["energy"] is not None]
        assert math.isclose(summary["idle_energy_j"] + sum(jobs_j), summary["energy"]["value_j"], rel_tol=1e-6)
    for job in summary["jobs"]:
        spent_s = job["spent_s"]
        assert all(value_s >= 0.0 for value_s in spent_s.values()), spent_s
        if job["jct_s"] is not None and spent_s:
            assert math.isclose(sum(spent_s.values()), job["jct_s"], abs_tol=0.001), (job["jct_s"], spent_s)
        if not spent_s.get("beside") and not spent_s.get("waits") and not spent_s.get("parked"):
            assert job["slowdown"] in (None, 1.0), "no other job had a turn while it was there"


def parent(pid: int) -> int:
    """Process that started a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def slow_steps(name: str, steps: int, milliseconds: int = 20, **keys: Any) -> dict[str, Any]:
    """Job that trains for about this time."""
    args = ["--steps", str(steps), "--ms", str(milliseconds), *keys.pop("args", [])]
    return {"name": name, "script": str(SCRIPTS / "slow_steps.py"), "args": args, **keys}


def copy_of_scripts(folder: Path) -> Path:
    """Copy of the test scripts, for scripts that write beside themselves."""
    target = folder / "scripts"
    shutil.copytree(SCRIPTS, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def alone(script: Path, args: tuple[str, ...], cwd: Path, cold: bool = False, **environment: str) -> tuple[int, bytes]:
    """Exit code and stdout of a script by itself: of `python script args` if `cold`, else forked with torch loaded.

    Both are kept below pytest's cache until the script changes, or a file beside it.
    """
    kept = _kept(f"alone {cold}", script, args, environment)
    if not kept.exists():
        code, stdout = _run_alone(script, args, cwd, cold, environment)
        if len(stdout) > _LARGEST_KEPT or any(Path(arg).is_absolute() for arg in args):
            return code, stdout
        atomic_write(kept, f"{code}\n".encode() + stdout, concurrent=True)
    code_line, _, stdout = kept.read_bytes().partition(b"\n")
    return int(code_line), stdout


def settled(script: Path, args: tuple[str, ...], cwd: Path) -> bytes:
    """Stdout of a script by itself on which two runs agree: torch's first calls may race (`lane/hooks.py`).

    At night the first run is that of `python script args`; all others are forked with torch loaded.
    """
    kept = _kept(f"settled {is_nightly()}", script, args, {})
    seen: list[bytes] = []
    while not kept.exists():
        code, stdout = _run_alone(script, args, cwd, is_nightly() and not seen, {})
        assert code == 0
        assert len(seen) < 5, f"{script} never prints the same twice"
        if stdout in seen:
            atomic_write(kept, stdout, concurrent=True)
        seen.append(stdout)
    return kept.read_bytes()


def _run_alone(script: Path, args: tuple[str, ...], cwd: Path, cold: bool, own: dict[str, str]) -> tuple[int, bytes]:
    environment = {**os.environ, **own}
    forked = None if cold else fork_script(script, *args, cwd=cwd, environment=environment)
    if forked is not None:
        return forked
    done = subprocess.run(
        [sys.executable, str(script), *args],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        env={"GOMP_SPINCOUNT": SPIN_COUNT, **environment},  # or its threads burn what other tests need
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout


_LARGEST_KEPT = 1 << 24


def _kept(what: str, script: Path, args: tuple[str, ...], environment: dict[str, str]) -> Path:
    """Path named by a digest of everything on which the script's output can depend."""
    threads = {name: value for name, value in os.environ.items() if name.startswith(("OMP_", "MKL_", "GOMP_"))}
    machine = (version("torch"), sys.version, platform.processor(), len(os.sched_getaffinity(0)))
    told = (what, script.name, args, sorted({**threads, **environment}.items()), machine)
    digest = hashlib.sha256(repr(told).encode())
    for beside in sorted(script.parent.iterdir()):
        if beside.suffix in (".py", ".csv"):
            digest.update(beside.name.encode() + beside.read_bytes())
    folder = ROOT / ".pytest_cache" / "alone"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / digest.hexdigest()[:32]
