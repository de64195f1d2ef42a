"""Ten thousand trials in one sweep: memory and processor time of the controller.

Trials are the short ones of `bench_sweep.py`, of one small model, in fused lanes. Only the controller counts, by the
kernel's numbers: the server, the guard and the trials are other processes. Memory is compared between a tenth of the
trials and all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from ecoshare.base.disk import RUNS
from scripts.bench.benchmarking import Figure, Options, run_benchmark, say
from scripts.bench.controller_cost import ControllerCost, watched
from scripts.bench.job_file import JobEntry
from scripts.bench.sweep_ways import TRIAL, in_lanes

TRIALS, QUICK = 10_000, 500


class ManyOptions(Options):
    """Options of this benchmark.

    Attributes:
        iterations: Iterations of each trial.
    """

    iterations: int


def run(trials: int, iterations: int) -> ControllerCost:
    """Run one sweep with a number of trials of equal length.

    Raises:
        RuntimeError: The run or a trial fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job: JobEntry = {
            "name": "many",
            "script": str(TRIAL),
            "args": ["--model", "perceptron", "--lr", "{lr}", "--iterations", str(iterations)],
            "sweep": {"random": {"lr": {"log": [1e-4, 0.1]}}, "trials": trials, "metric": "loss={:f}"},
            "isolation": "lane",
        }
        line = in_lanes(folder, [job])
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        cost = watched(process, folder / RUNS)
        if process.returncode:
            raise RuntimeError((folder / "said").read_text()[-2000:])
        jobs = json.loads((folder / RUNS / "latest" / "summary.json").read_text())["jobs"]
        if len(jobs) != trials or any(each["state"] != "completed" for each in jobs):
            raise RuntimeError("a trial is missing")
        return cost


def measure(options: ManyOptions) -> list[Figure]:
    """All figures."""
    trials = QUICK if options.quick else TRIALS
    few, many = run(trials // 10, options.iterations), run(trials, options.iterations)
    say(f"{trials} trials: {many.wall_s:.1f} s")
    others = trials - trials // 10
    return [
        Figure(f"makespan, {trials} trials", many.wall_s, "s"),
        Figure(f"controller's memory, {trials // 10} trials", few.peak_bytes / 1e6, "MB"),
        Figure(f"controller's memory, {trials} trials", many.peak_bytes / 1e6, "MB", "<= 500"),
        Figure("controller's memory by trial", (many.peak_bytes - few.peak_bytes) / others / 1e3, "kB"),
        Figure("controller's time by trial", 1e3 * (many.controller_s - few.controller_s) / others, "ms"),
        Figure(
            "controller's part of the processors' time",
            100 * many.controller_s / (many.wall_s * len(os.sched_getaffinity(0))),
            "%",
            "<= 5",
            f"trials of {options.iterations} iterations",
        ),
    ]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, default=20, help="of each trial, 0.25 ms each [20]")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("many", __doc__, measure, ManyOptions, _add_options)


if __name__ == "__main__":
    main()
