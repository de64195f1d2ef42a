"""Partial backpropagation of gangs, and `jigsaw`: bytes, time, joules and accuracy, and the use of a cluster.

Gangs of two ranks on two parts of the processors train on scikit-learn's digits, once with full backpropagation
(DistributedDataParallel) and once with `ecoshare.contrib.spb`. Bytes are those that the loopback device counted, in
both directions and with all that TCP adds. The cost of an iteration is that of a wide model, from runs of two lengths,
so that starts count for nothing. Joules are modelled from processor time where the machine has no counter.

The simulated cluster has gangs of 2, 4 and 8 GPUs, twice as many as it can do. The world plays iterations one by one
(spb_world.py). Messages cost nothing there, with either way. Efficiency is the work done in a GPU-second of the last
three quarters of the arrivals, when jobs wait; a job works evenly from its start to its end. It is compared with the
same jobs with full backpropagation, in the same order, with each GPU for one gang at a time.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoshare.base.job_spec import PARTIAL_CLASS
from ecoshare.contrib.spb import layers_within
from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from scripts.bench.benchmarking import JOBS, ROOT, Figure, Options, keep_to, median, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs
from scripts.bench.spb_world import PlayedWorld

SCRIPT = str(ROOT / "examples" / "spb_digits.py")
WAYS = {"full": ["--full"], "partial": []}
WIDE = ["--width", "1024", "--batch-size", "128"]
"""Arguments of a model on which an iteration mostly computes."""


@dataclass(frozen=True)
class Cost:
    """Cost of an iteration of a gang.

    Attributes:
        time_s: Wall time with the turn.
        energy_j: Joules of the gang, without idle power.
    """

    time_s: float
    energy_j: float


def measure(options: Options) -> list[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory() as name:
        keep_to(Path(name))
        return [
            *_bytes_figures(options.quick),
            *_accuracies(Path(name), options.quick),
            *([] if options.quick else _live(Path(name))),
            *_simulated(options.quick),
        ]


def _bytes_figures(quick: bool) -> list[Figure]:
    """Bytes of an iteration of two and of four ranks."""
    figures = []
    for ranks in (2,) if quick else (2, 4):
        sent = {way: _sent_bytes(ranks, args) for way, args in WAYS.items()}
        say(f"{ranks} ranks: " + ", ".join(f"{way} {each / 1e6:.3f} MB an iteration" for way, each in sent.items()))
        what = f"{ranks} ranks: bytes sent, all ranks and both directions"
        note = "gradients to the average, and averages back; layers of equal size give 0.75 for any number of ranks"
        figures += [
            Figure(f"{what}, full", sent["full"] / 1e6, "MB"),
            Figure(f"{what}, partial / full", sent["partial"] / sent["full"], "x", "<= 0.6", note),
            Figure(f"{ranks} ranks: gradients sent to be averaged, partial / full", _gradients(ranks), "x"),
        ]
    return figures


def _sent_bytes(ranks: int, args: list[str]) -> float:
    """Bytes on the loopback device in an iteration: the difference of two runs, so that meeting counts for nothing.

    Raises:
        CalledProcessError: A rank fails, or users may make no network of their own here.
    """
    count = ["unshare", "--map-root-user", "--net", sys.executable, str(JOBS / "count_bytes.py"), str(ranks), SCRIPT]
    lines = [[*count, "--device", "cpu", *WIDE, *args, "--epochs", str(epochs)] for epochs in (1, 4)]
    short, long = (int(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout) for line in lines)
    each_epoch = -(-1437 // (128 * ranks)) - 1
    return (long - short) / (3 * each_epoch)


def _gradients(ranks: int) -> float:
    """Gradients that leave the ranks for the average, over those of full backpropagation."""
    sizes = [64 * 1024 + 1024, 1024 * 1025, 1024 * 1025, 1025 * 10]  # layers of the example with `WIDE`
    own = [sum(sizes[len(sizes) - layers_within(len(sizes), rank, ranks, 0) :]) for rank in range(ranks)]
    return (sum(own) - max(own)) / ((ranks - 1) * sum(sizes))


def _accuracies(folder: Path, quick: bool) -> list[Figure]:
    """Test accuracy of the example as it is, by seeds."""
    seeds, epochs = (2, "1") if quick else (5, "60")
    jobs = [
        _job(f"{way}-{seed}", [*args, "--seed", str(seed), "--epochs", epochs])
        for way, args in WAYS.items()
        for seed in range(seeds)
    ]
    _run(folder, jobs, *JIGSAW)
    found = {way: [_accuracy(folder, f"{way}-{seed}") for seed in range(seeds)] for way in WAYS}
    error = statistics.stdev(found["full"]) / seeds**0.5
    lost = [full - partial for full, partial in zip(found["full"], found["partial"], strict=True)]
    say(f"accuracy: {found}")
    return [
        *(
            Figure(f"test accuracy, {way}, mean of {seeds} seeds", 100 * statistics.mean(found[way]), "%")
            for way in WAYS
        ),
        Figure("standard error of full backpropagation", 100 * error, "%"),
        Figure("accuracy lost / this standard error", statistics.mean(lost) / error, "x", "" if quick else "<= 1"),
        Figure("largest loss of a seed", 100 * max(lost), "%"),
    ]


def _accuracy(folder: Path, job: str) -> float:
    words = (folder / "runs/latest/jobs" / job / "stdout.log").read_text().rpartition("accuracy ")[2]
    return float(words.split()[0])


def _live(folder: Path) -> list[Figure]:
    """Cost of an iteration, and two gangs beside each other against one after the other."""
    short, long = 2, 16
    cost: dict[str, list[Cost]] = {way: [] for way in WAYS}
    worked: dict[str, dict[str, list[float]]] = {way: {"after": [], "beside": []} for way in WAYS}
    for _ in range(3):
        jobs = [
            _job(f"{way}-{epochs}", [*args, *WIDE, "--epochs", str(epochs)])
            for epochs in (short, long)
            for way, args in WAYS.items()
        ]
        told = {each["name"]: each for each in _run(folder, jobs, *IN_TURN)["jobs"]}
        for way, args in WAYS.items():
            cost[way].append(_cost(told[f"{way}-{short}"], told[f"{way}-{long}"]))
            pair = [_job(f"gang-{seed}", [*args, *WIDE, "--epochs", str(long), "--seed", str(seed)]) for seed in (0, 1)]
            worked[way]["beside"].append(_worked_s(_run(folder, pair, *JIGSAW)))
            worked[way]["after"].append(_worked_s(_run(folder, pair, *IN_TURN)))
        say(f"{cost}; {worked}")
    what = "two gangs on two cores: time with full backpropagation, one after the other"
    full_s = worked["full"]["after"]
    return [
        Figure(
            "time of an iteration, partial / full",
            _ratio([each.time_s for each in cost["partial"]], [each.time_s for each in cost["full"]]),
            "x",
        ),
        Figure(
            "joules of an iteration, partial / full",
            _ratio([each.energy_j for each in cost["partial"]], [each.energy_j for each in cost["full"]]),
            "x",
        ),
        Figure(f"{what} / partial, one after the other", _ratio(full_s, worked["partial"]["after"]), "x"),
        Figure(f"{what} / full, beside each other", _ratio(full_s, worked["full"]["beside"]), "x"),
        Figure(f"{what} / partial, beside each other by jigsaw", _ratio(full_s, worked["partial"]["beside"]), "x"),
    ]


def _ratio(values: list[float], of: list[float]) -> float:
    """Median of the ratios in each round."""
    return median([value / each for value, each in zip(values, of, strict=True)])


IN_TURN = ("--policy", "jigsaw", "--lanes", "1")
JIGSAW = ("--policy", "jigsaw", "--lanes", "2")


def _job(name: str, args: list[str]) -> JobEntry:
    return {"name": name, "script": SCRIPT, "args": args, "gpus": 2, "launch": "ranks"}


def _cost(short: dict[str, Any], long: dict[str, Any]) -> Cost:
    """Cost of an iteration from two runs of different lengths."""
    more = long["iterations"] - short["iterations"]
    worked_s = [each["held_s"] - each["preparation_s"] for each in (short, long)]
    spent_j = [each["energy"]["value_j"] for each in (short, long)]
    return Cost((worked_s[1] - worked_s[0]) / more, (spent_j[1] - spent_j[0]) / more)


def _worked_s(summary: dict[str, Any]) -> float:
    """Time (s) in which the gangs trained, without the start of their scripts.

    It is the time with the turn of all, or of the longer one if they were beside each other.
    """
    jobs = summary["jobs"]
    ends = [each["finish_s"] for each in jobs]
    worked = [each["held_s"] - each["preparation_s"] for each in jobs]
    is_beside = max(each["start_s"] for each in jobs) < min(ends)
    return float(max(worked) if is_beside else sum(worked))


def _run(folder: Path, jobs: list[JobEntry], *options: str) -> dict[str, Any]:
    """Run gangs on two parts of the processors; returns the summary.

    Raises:
        RuntimeError: The command fails.
    """
    line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", "cpu/2", "--json"]
    line += ["--no-report", "--no-profiles", "--jobs-per-lane", "1", "--runs", str(folder / "runs"), *options]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


NODES = Cluster(4, 8, GPUS["v100"])
COSTS = Costs(stop_s=5.0, restart_s=30.0)
WIDTHS = (2, 2, 2, 4, 4, 8)
"""Numbers of ranks, one of which each job draws."""


@dataclass(frozen=True)
class ClusterWay:
    """One way to run the jobs of a simulated cluster.

    Attributes:
        in_turn: Whether an iteration has its device to itself.
    """

    name: str
    is_partial: bool
    policy: str
    lanes: int
    in_turn: bool = True


CLUSTER_WAYS = (
    ClusterWay("full, one lane, jigsaw", False, "jigsaw", 1),
    ClusterWay("full, one lane, fifo", False, "fifo", 1),
    ClusterWay("full, 2 lanes, jigsaw", False, "jigsaw", 2),
    ClusterWay("partial, one lane, jigsaw", True, "jigsaw", 1),
    ClusterWay("partial, 2 lanes, jigsaw", True, "jigsaw", 2),
    ClusterWay("partial, 2 lanes, fair", True, "fair", 2),
    ClusterWay("partial, 2 lanes, jigsaw, iterations share a device", True, "jigsaw", 2, in_turn=False),
    ClusterWay("partial, 3 lanes, jigsaw", True, "jigsaw", 3),
)
JUDGED = "partial, 2 lanes, jigsaw"


def _simulated(quick: bool) -> list[Figure]:
    """Efficiency of each way over the first, as medians of seeds."""
    seeds, count = (1, 200) if quick else (5, 600)
    gains: dict[str, list[float]] = {way.name: [] for way in CLUSTER_WAYS}
    others: dict[str, list[tuple[float, float]]] = {way.name: [] for way in CLUSTER_WAYS}
    for seed in range(seeds):
        results = [(way, _simulate(way, seed, count)) for way in CLUSTER_WAYS]
        before = results[0][1]
        for way, found in results:
            gains[way.name].append(found.efficiency / before.efficiency)
            others[way.name].append((found.makespan_s / before.makespan_s, found.jct_s / before.jct_s))
        say(f"seed {seed}: " + ", ".join(f"{name} {each[-1]:.3f}" for name, each in gains.items()))
    figures = []
    for way in CLUSTER_WAYS[1:]:
        makespan, jct = (median(each) for each in zip(*others[way.name], strict=True))
        note = f"{seeds} seeds: {min(gains[way.name]):.3f} to {max(gains[way.name]):.3f} times; "
        note += f"makespan {makespan:.3f}, mean JCT {jct:.3f} times"
        note += "; published: up to 28 %" if way.name == JUDGED else ""
        name = f"cluster of 32 GPUs: efficiency over full backpropagation in one lane: {way.name}"
        wanted = ">= 20" if way.name == JUDGED and not quick else ""
        figures.append(Figure(name, 100 * (median(gains[way.name]) - 1), "%", wanted, note))
    return figures


@dataclass(frozen=True)
class ClusterResult:
    """Outcome of a simulation.

    Attributes:
        efficiency: Device-seconds of work done in a GPU-second while jobs wait; at most 1 with one lane.
    """

    efficiency: float
    makespan_s: float
    jct_s: float


def _simulate(way: ClusterWay, seed: int, count: int) -> ClusterResult:
    trace = Trace("", "gangs", tuple(_jobs(way, seed, count)), "")
    world = PlayedWorld(NODES.gpu, in_turn=way.in_turn)
    result = Simulator(trace, NODES, Config(way.policy, way.lanes, 1), world, COSTS).run()
    to_s = trace.jobs[-1].arrival_s
    from_s = to_s / 4
    done_s = 0.0
    for each in result.finished:
        within_s = max(0.0, min(each.finish_s, to_s) - max(each.start_s, from_s))
        done_s += each.gpus * each.service_s * within_s / (each.finish_s - each.start_s)
    return ClusterResult(done_s / (NODES.size * (to_s - from_s)), result.makespan_s, float(result.jcts_s.mean()))


def _jobs(way: ClusterWay, seed: int, count: int) -> Iterator[TraceJob]:
    """Gangs of about half an hour, log-normal, of which twice as many come as the cluster can do."""
    draws = random.Random(seed)
    mean_s, mean_gpus = 1800.0, statistics.mean(WIDTHS)
    at_s = 0.0
    for number in range(count):
        at_s += draws.expovariate(2.0 * NODES.size / (mean_s * mean_gpus))
        gpus = draws.choice(WIDTHS)
        length_s = draws.lognormvariate(-0.5, 1.0) * mean_s
        prefix = PARTIAL_CLASS if way.is_partial else ""
        phases = (Phase(max(1, round(length_s / 0.2)), 0.2),)
        yield TraceJob(f"{number:03}", f"{prefix}gang", at_s, phases, gpus)


def main() -> None:
    """Run it from the command line."""
    run_benchmark("spb", __doc__, measure, Options)


if __name__ == "__main__":
    main()
