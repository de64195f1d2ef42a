"""Eight devices with eight lanes each, and 500 jobs: processor time of the controller, its meters included.

The devices are eight GPUs of the fake driver of the tests, behind the real NVML bindings. The jobs are real processes
that mostly wait for their GPU, so two processors are enough for 64 of them at once. Only the controller counts: the
warm server, the guard and the jobs are other processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.bench.benchmarking import Figure, Options, run_benchmark, say
from scripts.bench.controller_cost import ControllerCost, watched
from scripts.bench.job_file import JobEntry, write_jobs
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.training import MIB, SCRIPT, Training

DEVICES, LANES = 8, 8
"""Devices, and lanes on each."""

TRAINING = Training("waits", 200, 0.1, 0.05, 256 * MIB, 64 * MIB)
"""Load of each job: iterations of 0.2 s that leave the processors free."""


def run(jobs: int, steps: int) -> tuple[ControllerCost, dict[str, Any], float]:
    """Cost of the controller, the summary of the run, and the controller's share of a core while jobs ran.

    Args:
        jobs: Number of jobs.
        steps: Iterations of each, except for the first one on each device, which is short: a GPU is shared as soon as
            the memory of a class is known.

    Raises:
        RuntimeError: The run or a job fails.
    """
    with tempfile.TemporaryDirectory(prefix="bench-eight-") as name:
        folder = Path(name)
        driver = FakeDriver(folder, [presets.H200] * DEVICES)
        (folder / "trains.py").write_text(SCRIPT)
        entries: list[JobEntry] = [
            {
                "name": f"job{number}",
                "script": "trains.py",
                "class": TRAINING.name,
                "args": TRAINING.args(2 if number < DEVICES else steps),
            }
            for number in range(jobs)
        ]
        environment = {**os.environ, **driver.environment, "ECOSHARE_STATE": str(folder / "state")}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, entries)), "--policy", "fair"]
        line += ["--lanes", str(LANES), "--jobs-per-lane", "1", "--control", "off", "--no-profiles", "--no-report"]
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(
                [*line, "--runs", str(folder / "runs")],
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        cost = watched(process, folder / "runs")
        if process.returncode:
            raise RuntimeError((folder / "said").read_text()[-2000:])
        latest = folder / "runs" / "latest"
        summary: dict[str, Any] = json.loads((latest / "summary.json").read_text())
        opened_s = json.loads((latest / "environment.json").read_text())["opened_unix_s"]
        began_s, ended_s = min(_times(summary, "start_s")), max(_times(summary, "finish_s"))
        return cost, summary, cost.share(opened_s + began_s, opened_s + ended_s)


def _times(summary: dict[str, Any], name: str) -> list[float]:
    return [job[name] for job in summary["jobs"]]


def most_at_once(jobs: list[dict[str, Any]]) -> int:
    """Most jobs that were alive at a moment."""
    changes = sorted(change for job in jobs for change in ((job["start_s"], 1), (job["finish_s"], -1)))
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def measure(options: Options) -> list[Figure]:
    """All figures."""
    if COMPILER is None:
        return [Figure("controller / one core", None, "%", "<= 5", "the fake driver is compiled: no C compiler here")]
    jobs, steps = (128, 20) if options.quick else (500, 60)
    cost, summary, share = run(jobs, steps)
    completed = sum(job["state"] == "completed" for job in summary["jobs"])
    measured = sum(device["energy"]["source"] == "measured" for device in summary["devices"] if device["energy"])
    say(f"{jobs} jobs in {cost.wall_s:.0f} s")
    note = "from the start of the first job to the end of the last one; iterations of 0.2 s"
    return [
        Figure("controller / one core", 100 * share, "%", "<= 5", note),
        Figure("controller / one core, whole command", 100 * cost.controller_s / cost.wall_s, "%"),
        Figure("controller, whole command", cost.controller_s, "s", note="with its start, its end and the summary"),
        Figure(f"jobs completed, of {jobs}", completed, "", f">= {jobs}"),
        Figure("most jobs alive at once", most_at_once(summary["jobs"]), "", f">= {DEVICES * LANES}"),
        Figure("devices with joules of a counter", measured, "", f">= {DEVICES}"),
        Figure("wall time of the command", cost.wall_s, "s"),
        Figure("controller's memory", cost.peak_bytes / 1e6, "MB"),
    ]


def main() -> None:
    """Run it from the command line."""
    run_benchmark("eight", __doc__, measure, Options)
