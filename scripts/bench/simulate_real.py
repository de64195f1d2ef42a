"""Real runs of jobs of different lengths in one lane, against their simulations from their records.

The simulator shares the scheduler and the record with the run that it is compared with. It has its own lanes, costs
and times of iterations, so an error here is one of these.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.world import World
from scripts.bench.benchmarking import JOBS, Figure, median, say

STEPS = (200, 130, 100, 300)
"""Iterations of each job. The lengths differ clearly, since srtf decides by how many are left. One arrives a second."""

POLICIES, ROUNDS = ("fair", "pack", "srtf"), 3


def errors(quick: bool) -> Iterator[Figure]:
    """For each policy, the median error of a job's JCT; quickly for one of them and in one run."""
    for policy in POLICIES[:1] if quick else POLICIES:
        jcts_s = [each for _ in range(1 if quick else ROUNDS) for each in _jcts_s(policy)]
        say(f"{policy}: " + ", ".join(f"{real_s:.2f} and {simulated_s:.2f} s" for real_s, simulated_s in jcts_s))
        off = [100 * abs(simulated_s / real_s - 1) for real_s, simulated_s in jcts_s]
        note = f"of {len(off)} jobs; the largest {max(off):.1f} %"
        yield Figure(f"real run under {policy}: error of a JCT", median(off), "%", "<= 3", note)


def _jcts_s(policy: str) -> list[tuple[float, float]]:
    """JCT (s) of each job: in a real run, and in its simulation."""
    jobs = [
        {
            "name": f"steady-{at}",
            "script": str(JOBS / "steady_job.py"),
            "args": [str(steps)],
            "iterations": steps,
            "arrival": f"{at} s",
        }
        for at, steps in enumerate(STEPS)
    ]
    ended, trace = recorded(jobs, "--policy", policy, "--jobs-per-lane", str(len(STEPS)))
    real_s = {job["name"]: job["jct_s"] for job in ended}
    cluster = Cluster(1, 1, GPUS["h200"])
    simulator = Simulator(trace, cluster, Config(policy, 1, len(STEPS)), World(cluster.gpu), Costs())
    return [(real_s[each.name], each.jct_s) for each in simulator.run().finished]


def recorded(jobs: Sequence[Mapping[str, object]], *options: str) -> tuple[list[dict[str, Any]], Trace]:
    """Run jobs in one lane of the processors. Return what `ecoshare run` says of each, and the record as a trace."""
    with tempfile.TemporaryDirectory() as name:
        path, runs = Path(name) / "jobs.yaml", Path(name) / "runs"
        path.write_text(json.dumps({"version": 1, "jobs": jobs}))
        line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--json", "--no-profiles"]
        line += ["--lanes", "1", "--wait", "--runs", str(runs), *options]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["jobs"], read(runs / "latest")
