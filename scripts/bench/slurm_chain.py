"""A chain of allocations of a real Slurm on this machine: what its job repeats, and what the passages cost.

::

    reactive    ├── works ──┤ stop                          submitted when its predecessor stops
                              ├── works ──┤
    ahead       ├── works ────┤                             submitted before; takes over after half of its time
                           ├──┼── works ──┤

The job writes each iteration down and saves itself every second. SIGTERM ends it as it is. Slurm counts limits in
minutes: a reactive allocation has one, and works 40 s. One with a successor ahead has two, and works 50 s. Nothing else
is queued, so waits are those of Slurm itself. Processors are the devices, so joules of the overlap are modelled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.bench.benchmarking import ROOT, Figure, Options, keep_to, run_benchmark, say
from tests.cluster.saving_job import saving_job, what_it_wrote
from tests.cluster.slurm_cluster import is_installed, slurm

ALLOCATIONS = 5
WAYS = {
    "reactive": ("--time", "1min", "--predictor", "reactive"),
    "ahead": ("--time", "2min", "--predictor", "planned", "--margin", "1min"),
    "quick": ("--time", "1min", "--predictor", "planned", "--margin", "25s"),
}
QUICK_ALLOCATIONS = 2
_STEPS = 40


def measure(options: Options) -> list[Figure]:
    """All figures."""
    if not is_installed():
        return [Figure("chain of allocations", None, "", note="Slurm is not installed: apt-get install slurm-wlm")]
    count = QUICK_ALLOCATIONS if options.quick else ALLOCATIONS
    found: list[Figure] = []
    with slurm(2) as conf:
        environment = {**os.environ, "SLURM_CONF": str(conf), "PYTHONPATH": str(ROOT)}
        for way in ("quick",) if options.quick else ("reactive", "ahead"):
            with tempfile.TemporaryDirectory(prefix="bench-slurm-chain-") as name:
                keep_to(Path(name))
                found += _chain(Path(name), way, count, environment)
    return found


def _chain(folder: Path, way: str, count: int, environment: dict[str, str]) -> list[Figure]:
    """Figures of one chain of `count` sessions of its job."""
    saving_job(folder, _STEPS, count)
    words = ["slurm", "chain", "jobs.yaml", "--stop-before", "20s", *WAYS[way], "--json", "--"]
    words += ["--policy", "fair", "--no-profiles", "--no-report", "--share-device"]
    command = [sys.executable, "-m", "ecoshare", *words]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    summary = json.loads((Path(told["run"]) / "summary.json").read_text())
    run_j = summary["energy"]["value_j"] if summary["energy"] else None
    wrote = what_it_wrote(folder)
    say(f"{way}: {len(told['allocations'])} allocations, {wrote.iterations} iterations")
    overlap = 100.0 * told["overlap_s"] / told["span_s"]
    joules = f"{told['overlap_source']}; the run {run_j:.0f} J" if run_j is not None else told["overlap_source"]
    name = f"{way}, {len(told['allocations'])} allocations"
    return [
        Figure(f"{name}: iterations recorded twice beyond the checkpoint", wrote.beyond + wrote.missing, "", "<= 0"),
        Figure(
            f"{name}: iterations repeated since their checkpoint", wrote.repeated, "", note=f"of {wrote.iterations}"
        ),
        Figure(f"{name}: without an allocation", told["interruption_s"], "s", note=f"of {told['span_s']:.0f} s"),
        Figure(f"{name}: between the end of a run and its next start", told["between_s"], "s"),
        Figure(f"{name}: overlap", told["overlap_s"], "s", note=f"{overlap:.1f} % of the time"),
        Figure(f"{name}: joules of the overlap", told["overlap_j"], "J", note=joules),
    ]


def main() -> None:
    """Run it from the command line."""
    run_benchmark("slurm_chain", __doc__, measure, Options)
