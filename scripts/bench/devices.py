"""Several devices in one run: two partitions against one, and gangs that take turns with other jobs.

Partitions of the processors stand in for GPUs. Jobs, lanes, turns and ranks are real processes. These figures do not
see contexts, NCCL, and hosts that run ahead of their devices by many iterations.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.lane.gang_turn import GangTurn
from ecoshare.lane.tables.gang_table import GangTable
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.turn import LaneTurn
from scripts.bench.benchmarking import JOBS, Figure, Options, median, run_benchmark, say
from scripts.bench.gang_turns import turns
from scripts.bench.job_file import JobEntry, write_jobs

_COUNT = 12
"""Jobs that share one device or two; each keeps one processor busy."""

_ITERATION_S = 0.005
"""Iteration against which the cost of the agreement is compared."""


def run(folder: Path, jobs: Sequence[JobEntry], device: str, processors: set[int]) -> dict[str, Any]:
    """Run jobs on some of the processors, and return the summary.

    Raises:
        RuntimeError: The run or a job fails.
    """
    line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", device]
    line += ["--policy", "fair", "--jobs-per-lane", str(_COUNT), "--no-profiles", "--no-report", "--json"]
    done = subprocess.run(
        [*line, "--runs", str(folder / "runs")],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=partial(os.sched_setaffinity, 0, processors),
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def two_against_one(steps: int, times: int) -> list[Figure]:
    """Makespan of the same jobs on two partitions and on one, each kind in turn."""
    here = sorted(os.sched_getaffinity(0))[:2]
    if len(here) < 2:
        return [Figure("makespan, two devices / one", None, "", "<= 0.52", "this machine has one processor")]
    jobs: list[JobEntry] = [
        {"name": f"job{seed}", "script": str(JOBS / "device_job.py"), "args": [str(seed), str(steps)]}
        for seed in range(_COUNT)
    ]
    ratios, ones = [], []
    for number in range(times):
        with tempfile.TemporaryDirectory() as name:
            one = run(Path(name), jobs, "cpu", {here[0]})
            two = run(Path(name), jobs, "cpu/2", set(here))
        spans = [max(job["finish_s"] for job in each["jobs"]) - _begun_s(each) for each in (one, two)]
        say(f"{number + 1} of {times}: {spans[0]:.1f} s on one, {spans[1]:.1f} s on two")
        ratios.append(spans[1] / spans[0])
        ones.append(spans[0])
    note = f"{_COUNT} jobs of one thread that take {median(ones):.0f} s on one, from the first start to the last end"
    return [Figure("makespan, two devices / one", median(ratios), "", "<= 0.52", note)]


def _begun_s(summary: dict[str, Any]) -> float:
    return float(min(job["start_s"] for job in summary["jobs"]))


def gangs(steps: int) -> list[Figure]:
    """Two gangs of two ranks and two other jobs share two devices."""
    here = set(sorted(os.sched_getaffinity(0))[:2])
    gang: JobEntry = {
        "name": "gang",
        "script": str(JOBS / "gang_job.py"),
        "args": [str(steps)],
        "gpus": 2,
        "launch": "ranks",
    }
    other = str(JOBS / "device_job.py")
    beside: list[JobEntry] = [{"name": f"job{seed}", "script": other, "args": [str(seed), "1500"]} for seed in (0, 1)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = run(folder, [gang], "cpu/2", here)
        shared = run(folder, [gang, {**gang, "name": "again"}, *beside], "cpu/2", here)
        losses = [Path(alone["run"]) / "jobs" / "gang", *(Path(shared["run"]) / "jobs" / each for each in _GANGS)]
        said = [(folder / each / "stdout.log").read_bytes() for each in losses]
        found = [turns(folder / each) for each in losses[1:]]
    count = sum(len(each.iterations) for each in found)
    together = sum(each.together for each in found)
    note = f"{count} turns of two gangs that share their lanes with each other and with two jobs"
    return [
        Figure("turns of a gang that its ranks end together", together / count, "", ">= 1", note),
        Figure("gangs with the losses that one has alone", sum(each == said[0] for each in said[1:]), "", ">= 2"),
    ]


_GANGS = ("gang", "again")


def agreement(boundaries: int) -> Figure:
    """Time of a boundary of a rank at which nothing is due."""
    with tempfile.TemporaryDirectory() as name:
        table, gang = LaneTable.create(Path(name) / "lane"), GangTable.create(Path(name) / "gang", 1)
        table.seat(0)
        rank = GangTurn(gang, 0, [(table.path, 0)], lambda _why: None)
        turn = LaneTurn(table, 0, gang=rank)
        turn.take()

        def nothing() -> None:
            pass

        began_s = time.perf_counter()
        for _ in range(boundaries):
            rank.boundary(turn, nothing)
        each_s = (time.perf_counter() - began_s) / boundaries
        turn.leave()
    note = f"{1e6 * each_s:.2f} us at each boundary"
    return Figure("agreement / an iteration of 5 ms", 100 * each_s / _ITERATION_S, "%", "<= 1", note)


def measure(options: Options) -> list[Figure]:
    """All figures."""
    steps, times, shared = (400, 1, 1500) if options.quick else (3000, 5, 12_000)
    return [*two_against_one(steps, times), *gangs(shared), agreement(200_000)]


def main() -> None:
    """Run it from the command line."""
    run_benchmark("devices", __doc__, measure, Options)
