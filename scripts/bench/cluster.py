"""Runs on several nodes: how fast a decision reaches another machine, and how soon the first job runs.

::

    start   two agents over pipes, many short jobs: StartJob in the log ──► Done (the process exists)
            against the same jobs on two partitions of one machine
    first   `ecoshare run --on ray`: the command ──► first process of a job
            against the same by hand: ray.init, one actor a node, torch loaded in a process of one
            once with a Ray of its own, and once on a Ray of three nodes that is there
    scale   64 nodes of light agents and 2,000 jobs: cost of the run's process (scripts/bench/cluster_scale.py)
    kills   SIGKILL of raylets, actors, agents and the run on a real Ray of three nodes
            (scripts/bench/cluster_kills.py)

All nodes are this machine, so the network has no part in it. `--quick` leaves the kills out, since jobs of a lost node
wait 20 s; `--quick --only kills` kills each process once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ecoshare.core.commands import StartJob
from ecoshare.core.events import Done, RunOpened
from ecoshare.record import event_log
from scripts.bench.benchmarking import ROOT, Figure, Options, keep_to, run_benchmark, say
from scripts.bench.cluster_kills import KILLS, kills
from scripts.bench.cluster_kills import QUICK as QUICK_KILLS
from scripts.bench.cluster_scale import QUICK_SIZE, SIZE, scale
from tests.cluster.agents import run_on
from tests.cluster.ray_cluster import ray_cluster

PARTS = ("start", "first", "scale", "kills")
JOBS, QUICK_JOBS = 200, 20
RUNS = 5

NODES = 3

_BY_HAND = """
import subprocess, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address=sys.argv[1], log_to_driver=False, **({"include_dashboard": False} if sys.argv[1] == "local" else {}))
@ray.remote(num_cpus=0)
class Actor:
    def begin(self):
        pass
    def load(self):
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
where = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes()]
actors = [Actor.options(scheduling_strategy=each).remote() for each in where]
ray.get([each.begin.remote() for each in actors])
ray.get(actors[0].load.remote())
print(time.time(), flush=True)
"""


class ClusterOptions(Options):
    """Options of the benchmark.

    Attributes:
        only: The part to measure; empty for all.
        kills: Number of kills of each process; 0 for the default.
        seed: Number of the first round of kills.
        clusters: Number of clusters beside each other for the kills.
        minutes: Time (min) after which no round of kills begins.
    """

    only: str
    kills: int
    seed: int
    clusters: int
    minutes: float


def start(folder: Path, count: int) -> list[Figure]:
    """Time from the decision to start a job to its process, on agents and on one machine."""
    (folder / "short.py").write_text("")
    jobs = [{"name": f"j{number}", "script": str(folder / "short.py")} for number in range(count)]
    away_s = _starts(run_on(folder, jobs).folder.events)
    words = ["run", "jobs.yaml", "--device", "cpu/2", "--policy", "fair", "--no-profiles", "--no-report"]
    subprocess.run([sys.executable, "-m", "ecoshare", *words], cwd=folder, capture_output=True, check=True)
    here_s = _starts(folder / "ecoshare-runs" / "latest" / "events.jsonl")
    note = f"medians of {len(away_s)} starts; the tenth of them that waited longest, for torch, is left out"
    return [
        Figure("decision to process on another node, median", statistics.median(away_s) * 1e3, "ms", "<= 20", note),
        Figure("decision to process on one machine, median", statistics.median(here_s) * 1e3, "ms"),
        Figure("on another node / on one machine", statistics.median(away_s) / statistics.median(here_s), ""),
    ]


def _starts(log: Path) -> list[float]:
    """Times (s) of the starts of a run, without the longest tenth."""
    times_s, started = list[float](), dict[int, float]()
    for event, commands, _ in event_log.steps(event_log.read(log)):
        if isinstance(event, Done) and event.command in started:
            times_s.append(event.at_s - started.pop(event.command))
        started |= {each.id: event.at_s for each in commands if isinstance(each, StartJob)}
    return sorted(times_s)[: -len(times_s) // 10]


def first(folder: Path, count: int) -> list[Figure]:
    """Time from the command to the first process of a job on Ray, against the same by hand."""
    (folder / "short.py").write_text("")
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": [{"name": "a", "script": "short.py"}]}))
    own = _pairs(folder, count, "command to first job on Ray / the same by hand")
    with ray_cluster(NODES, network=9) as cluster:
        name = f"command to first job on a Ray of {NODES} nodes / the same by hand"
        return [own, _pairs(folder, count, name, cluster.address)]


def _pairs(folder: Path, count: int, name: str, address: str = "") -> Figure:
    """Median ratio of pairs of runs: on the Ray at an address, or on one of their own if it is empty."""
    ratios, ours_s, hands_s = list[float](), list[float](), list[float]()
    for number in range(count):
        hands_s.append(_by_hand(address or "local"))
        ours_s.append(_first(folder, ["--address", address, "--share-device"] if address else []))
        ratios.append(ours_s[-1] / hands_s[-1])
        say(f"{number + 1} of {count}: {ours_s[-1]:.1f} s, by hand {hands_s[-1]:.1f} s")
    note = f"medians {statistics.median(ours_s):.1f} s and {statistics.median(hands_s):.1f} s of {count} pairs"
    return Figure(name, statistics.median(ratios), "", "<= 1.5", note)


def _by_hand(address: str) -> float:
    began_s = time.time()
    done = subprocess.run([sys.executable, "-c", _BY_HAND, address], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1]) - began_s


def _first(folder: Path, where: Sequence[str]) -> float:
    began_s = time.time()
    words = ["run", "jobs.yaml", "--on", "ray", *where, "--device", "cpu", "--no-profiles", "--no-report"]
    subprocess.run([sys.executable, "-m", "ecoshare", *words], cwd=folder, capture_output=True, check=True)
    run = folder / "ecoshare-runs" / "latest"
    opened_unix_s = json.loads((run / "environment.json").read_text())["opened_unix_s"]
    entries = list(event_log.read(run / "events.jsonl"))
    assert isinstance(entries[0], RunOpened)
    [begun] = [each.id for each in entries if isinstance(each, StartJob)]
    at_s = next(each.at_s for each in entries if isinstance(each, Done) and each.command == begun)
    return float(opened_unix_s + at_s - began_s)


def measure(options: ClusterOptions) -> list[Figure]:
    """All figures."""
    found: list[Figure] = []
    os.environ["PYTHONPATH"] = str(ROOT)
    for part in PARTS:
        if part != (options.only or part) or (part == "kills" and options.quick and not options.only):
            continue
        with tempfile.TemporaryDirectory(prefix=f"bench-cluster-{part}-") as name:
            keep_to(Path(name))
            match part:
                case "start":
                    found += start(Path(name), QUICK_JOBS if options.quick else JOBS)
                case "first":
                    found += first(Path(name), 1 if options.quick else RUNS)
                case "scale":
                    found += scale(Path(name), *(QUICK_SIZE if options.quick else SIZE))
                case "kills":
                    count = options.kills or (QUICK_KILLS if options.quick else KILLS)
                    found += kills(Path(name), count, options.seed, options.clusters, 60.0 * options.minutes)
    return found


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=PARTS, default="", help="measure this part alone")
    parser.add_argument("--kills", type=int, default=0, help=f"number of kills of each process [{KILLS}]")
    parser.add_argument("--seed", type=int, default=0, help="number of the first round of kills [0]")
    parser.add_argument("--clusters", type=int, default=1, help="clusters beside each other for the kills [1]")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no round of kills begins later [no limit]")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("cluster", __doc__, measure, ClusterOptions, _options)
