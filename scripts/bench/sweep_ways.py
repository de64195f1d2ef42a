"""Ways in which bench_sweep.py runs the same trials: with joblib, Optuna, Ray Tune, and through ecoshare.

Each way is a program of its own, so that its memory is that of its processes, and its time includes the start of the
tool, the import of torch, and the end. A way is left out if its tool is not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ecoshare.base.disk import RUNS
from scripts.bench.benchmarking import JOBS, ROOT, children_s
from scripts.bench.job_file import JobEntry, write_jobs

TRIAL = JOBS / "sweep_trial.py"
AT_ONCE = 2
"""Number of trials at a time: the cores of the machine of the published figures."""

_LOOK_S = 0.25


@dataclass(frozen=True)
class Spent:
    """Cost and losses of one way.

    Attributes:
        processor_s: Processor time of all its processes.
        losses: Losses of the trials, in the order of their arguments.
        peak_bytes: Largest sum of the proportional set sizes of all its processes.
    """

    wall_s: float
    processor_s: float
    peak_bytes: int
    losses: tuple[float, ...]


def arguments(trials: int, iterations: int) -> list[list[str]]:
    """Arguments of each trial: three models by learning rates."""
    from scripts.bench.jobs.sweep_trial import MODELS

    return [
        ["--model", MODELS[n % 3], "--lr", repr(0.001 * (1 + n // 3)), "--iterations", str(iterations)]
        for n in range(trials)
    ]


def needs(way: str) -> str:
    """Package that is not installed; empty if none is missing."""
    package = {"joblib": "joblib", "optuna": "optuna", "ray": "ray"}.get(way, "")
    return package if package and find_spec(package) is None else ""


def run(way: str, trials: int, iterations: int) -> Spent:
    """Run all trials one way.

    Raises:
        RuntimeError: The program fails, or a trial's loss is missing.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = dict(os.environ)
        if way.startswith("ecoshare"):
            line = _ecoshare(folder, way, trials, iterations)
        else:
            line = [sys.executable, "-m", "scripts.bench.sweep_tools", way, str(trials), str(iterations)]
            line += [str(folder / "losses.json")]
            # The workers of joblib and Ray import the trial, too.
            path = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([path] if path else [])])
        began_s, before_s = time.monotonic(), children_s()
        process = subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment
        )
        peak = _Peak(process.pid)
        _, said = process.communicate()
        wall_s = time.monotonic() - began_s
        if process.returncode:
            raise RuntimeError(f"{way}: {said[-2000:]}")
        losses = (
            _told(folder, trials) if way.startswith("ecoshare") else json.loads((folder / "losses.json").read_text())
        )
        return Spent(wall_s, children_s() - before_s, peak.bytes(), tuple(losses))


def _ecoshare(folder: Path, way: str, trials: int, iterations: int) -> list[str]:
    jobs: list[JobEntry] = []
    for number, each in enumerate(arguments(min(trials, 3), iterations)):
        rates = [args[3] for args in arguments(trials, iterations)[number::3]]
        job: JobEntry = {"name": each[1], "script": str(TRIAL), "args": [*each[:2], "--lr", "{lr}", *each[4:]]}
        job["sweep"] = {"grid": {"lr": rates}, "metric": "loss={:f}"}
        if way.endswith("fused"):
            job["isolation"] = "lane"
        jobs.append(job)
    return in_lanes(folder, jobs)


def in_lanes(folder: Path, jobs: Sequence[JobEntry]) -> list[str]:
    """The command line that runs these jobs from `folder`, `AT_ONCE` at a time."""
    path = write_jobs(folder, jobs)
    line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--no-report", "--json"]
    # One more in each lane than can run, so that a lane need not wait for the controller.
    return [*line, "--no-profiles", "--policy", "pack", "--lanes", str(AT_ONCE), "--jobs-per-lane", "2"]


def _told(folder: Path, trials: int) -> list[float]:
    summary = json.loads((folder / RUNS / "latest" / "summary.json").read_text())
    value = {(job["class"], job["values"]["lr"]): job["value"] for job in summary["jobs"]}
    assert len(value) == len(summary["jobs"]) == trials, "a trial is missing"
    classes = [
        next(job["class"] for job in summary["jobs"] if job["sweep"] == args[1]) for args in arguments(trials, 1)
    ]
    return [value[name, args[3]] for name, args in zip(classes, arguments(trials, 1), strict=True)]


class _Peak:
    """Watch on the memory of a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most = pid, 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        from ecoshare.lane import processes

        while Path(f"/proc/{self._pid}").exists():
            family = processes.family(self._pid)
            for each in os.scandir("/proc"):  # Ray's workers are not children of the process
                if each.name.isdigit() and b"ray::" in _line_of(each.name):
                    family += processes.family(int(each.name))
            self._most = max(self._most, processes.proportional_bytes(list(dict.fromkeys(family))))
            time.sleep(_LOOK_S)

    def bytes(self) -> int:
        """Largest sum so far."""
        self._thread.join()
        return self._most


def _line_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
