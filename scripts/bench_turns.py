#!/usr/bin/env python3
"""What taking turns costs: the hand-over itself, and N jobs in one lane against the sum of their times alone.

Alone means in an ordinary process, in the user's own environment. Each round measures alone, then shared, in one run;
the figure is the median of the rounds' ratios. All jobs of a lane warm up until the last is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

from benchmarking import ROOT, Figure, main, median, percentile, say
from ecoshare.lane.table import LaneTable
from ecoshare.lane.turn import Turn

JOB = ROOT / "scripts" / "turns_job.py"
WANTED = {("1", 5): "<= 1.02", ("1", 20): "<= 1.01", ("default", 5): "<= 1.05", ("default", 20): "<= 1.03"}


def handover(jobs: int, turns: int) -> list[Figure]:
    """Time from the boundary at which a holder gives up its turn until the next holder runs on, with no work at all."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        table = LaneTable.create(Path(folder) / "lane")
        results = [Path(folder) / f"{slot}.json" for slot in range(jobs)]
        pids = []
        for slot in range(jobs):
            table.seat(slot)
        for slot in range(jobs):
            pid = os.fork()
            if pid == 0:
                results[slot].write_text(json.dumps(_hand_over(LaneTable(table.path), slot, turns)))
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        latencies_us = [1e6 * each for result in results for each in json.loads(result.read_text())]
    return [
        Figure(f"hand-over p50, {jobs} jobs", median(latencies_us), "us", "<= 50", "decision and wake-up, no drain"),
        Figure(f"hand-over p95, {jobs} jobs", percentile(latencies_us, 0.95), "us"),
    ]


def _hand_over(table: LaneTable, slot: int, turns: int) -> list[float]:
    turn = Turn(table, slot)
    mine = table.slots[slot]
    latencies = []
    turn.take()
    for _ in range(turns):
        table.header.quantum_s = 0.0
        before = mine.handovers
        turn.offer(lambda: None)
        if mine.handovers != before:
            latencies.append(mine.since_s - table.header.handed_s)
    turn.leave()
    return latencies


class Alone:
    """A process that trains on demand, in the user's own environment."""

    def __init__(self, threads: str) -> None:
        environment = dict(os.environ) if threads == "default" else {**os.environ, "OMP_NUM_THREADS": threads}
        self._process = subprocess.Popen(
            [sys.executable, str(JOB), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def time_s(self, layers: int, iterations: int) -> float:
        """Seconds for so many iterations."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{layers} {iterations}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def layers_for(self, milliseconds: float) -> int:
        """How many layers make an iteration of about this long."""
        layers = 4
        for _ in range(3):
            measured_ms = 1e3 * self.time_s(layers, 30) / 30
            layers = max(1, round(layers * milliseconds / measured_ms))
        return layers

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def shared(jobs: int, layers: int, iterations: int, threads: str) -> tuple[float, float, float]:
    """Seconds for all jobs together in one lane, the longest wait, and the mean quantum, seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        args = ["--layers", str(layers), "--iterations", str(iterations), "--jobs", str(jobs), "--folder", name]
        described = [{"name": f"j{n}", "script": str(JOB), "args": [*args, "--name", str(n)]} for n in range(jobs)]
        (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": described}))
        # The whole run has the thread count, so that jobs are forked from a warm server that has it too.
        environment = dict(os.environ) if threads == "default" else {**os.environ, "OMP_NUM_THREADS": threads}
        line = [sys.executable, "-m", "ecoshare", "run", str(folder / "jobs.yaml"), "--device", "cpu", "--json"]
        line += ["--policy", "fair", "--jobs-per-lane", str(jobs), "--runs", str(folder / "runs")]
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        times = [tuple(map(float, (folder / f"times-{n}").read_text().split())) for n in range(jobs)]
        described = json.loads(done.stdout)["jobs"]
        # Before the last job is there, waits are of start-up; a quantum is what was held a turn.
        wait_s = max(job["longest_wait_s"] for job in described)
        turns = sum(job["handovers"] for job in described)
        quantum_s = sum(job["held_s"] for job in described) / turns
    return max(end for _, end in times) - min(begin for begin, _ in times), wait_s, quantum_s


def measure(options: argparse.Namespace) -> list[Figure]:
    """All figures."""
    figures = handover(2, 4000) + handover(8, 2000)
    lengths_ms = (5, 20) if options.quick else (1, 5, 20, 100)
    counts = (4,) if options.quick else (2, 4, 8)
    rounds, budget_s = (1, 3.0) if options.quick else (5, 4.0)
    for threads in ("1", "default"):
        process = Alone(threads)
        for length_ms in lengths_ms:
            layers = process.layers_for(length_ms)
            for jobs in counts:
                iterations = max(4, round(budget_s * 1e3 / length_ms / jobs))
                ratios, waits_s, quanta_s, alone_ms = [], [], [], []
                for _ in range(rounds):
                    before_s = process.time_s(layers, iterations)
                    together_s, wait_s, quantum_s = shared(jobs, layers, iterations, threads)
                    after_s = process.time_s(layers, iterations)
                    each_s = mean((before_s, after_s))
                    ratios.append(together_s / (jobs * each_s))
                    waits_s.append(wait_s)
                    quanta_s.append(quantum_s)
                    alone_ms.append(1e3 * each_s / iterations)
                name = f"{jobs} jobs, {length_ms} ms, threads {threads}"
                note = f"alone {median(alone_ms):.2f} ms, quantum {1e3 * median(quanta_s):.0f} ms"
                wanted = WANTED.get((threads, length_ms), "")
                figures.append(Figure(f"time together / sum alone, {name}", median(ratios), "", wanted, note))
                figures.append(Figure(f"longest wait, {name}", max(waits_s), "s", f"<= {jobs * 0.25}"))
                say(f"{name}: {[round(ratio, 4) for ratio in ratios]} {note} wait {max(waits_s):.3f} s")
        process.close()
    return figures


if __name__ == "__main__":
    main("turns", __doc__, measure)
