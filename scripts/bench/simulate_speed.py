"""Speed and memory of simulations, for bench_simulate.py.

Each simulation runs in a process of its own, like `ecoshare simulate`, without the remains of another (a fragmented
heap, objects for the collector).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.generate import generate
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.world import World
from scripts.bench.benchmarking import Figure, say

WANTED = {"fifo": 10_000, "srtf": 10_000, "tiresias": 5_000}
"""Jobs a second, by policy."""

PEERS = "peers: Tiresias 170 to 800, Gavel 15 to 50, Pollux 11"

GPUS_OF_NODE = 8

QUICK_JOBS = 5_000
"""Number of the first jobs of the Philly trace that `--quick` takes."""

SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000), (3_200, 9_600)
"""Numbers of generated jobs, each for a hundredth as many GPUs, so that load and length are alike."""

JOBS_A_GPU = 100

GROWTH_LOAD = 1.5
"""Load, above 1. At Philly's own load of 0.94 a cluster that is empty at first gets no queue under `srtf` within that
many jobs, since most of the work is in a few long ones: none of 10^6 jobs on 10,000 GPUs was preempted."""

MOST_BYTES = 2e9

Load = Callable[[], Trace]


@dataclass(frozen=True)
class Philly:
    """First jobs of the Philly trace.

    Attributes:
        data: Folder of data.
        jobs: Largest number of jobs.
    """

    data: Path
    jobs: int

    def __call__(self) -> Trace:
        """Read the trace."""
        trace = read(self.data / "philly" / "philly_jobs.csv")
        return replace(trace, jobs=trace.jobs[: self.jobs])


@dataclass(frozen=True)
class Generated:
    """Jobs with the sizes and lengths of Philly's, by the quantiles that the project states."""

    jobs: int
    gpus: int

    def __call__(self) -> Trace:
        """Generate the trace."""
        return generate("philly", self.jobs, 0, gpus=self.gpus, load=GROWTH_LOAD)


@dataclass(frozen=True)
class Run:
    """Cost of one simulation.

    Attributes:
        load_s: Processor time for reading or making the trace, before it.
        cpu_s: Processor time of the simulation.
        peak_bytes: Most memory of the whole process.
    """

    jobs: int
    load_s: float
    cpu_s: float
    wall_s: float
    peak_bytes: int
    preemptions: int

    @property
    def job_s(self) -> float:
        """Processor time for a job."""
        return self.cpu_s / self.jobs


def run(load: Load, gpus: int, policy: str) -> Run:
    """Simulate a trace in a new process, with one job a GPU like in a live run."""
    # spawn: a fork would have this process's memory, and count it as its own.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_run, load, gpus, policy).result()


def _run(load: Load, gpus: int, policy: str) -> Run:
    began_s = time.process_time()
    trace = load()
    load_s = time.process_time() - began_s
    cluster = Cluster(gpus // GPUS_OF_NODE, GPUS_OF_NODE, GPUS["v100"])
    simulator = Simulator(trace, cluster, Config(policy, 1, 1, preempt=True), World(cluster.gpu), Costs())
    began_s, began_wall_s = time.process_time(), time.perf_counter()
    result = simulator.run()
    cpu_s, wall_s = time.process_time() - began_s, time.perf_counter() - began_wall_s
    return Run(len(trace.jobs), load_s, cpu_s, wall_s, _peak_bytes(), result.preemptions)


def _peak_bytes() -> int:
    """Most memory that this process has had.

    The value is not `ru_maxrss`, which a process inherits from the process that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def philly(data: Path, quick: bool) -> list[Figure]:
    """Jobs a second on the Philly trace, 400 GPUs."""
    figures = []
    for policy, wanted in WANTED.items():
        found = run(Philly(data, QUICK_JOBS if quick else 10**9), 400, policy)
        say(f"philly, {policy}: {found}")
        which = f"its first {found.jobs:,} jobs" if quick else f"{found.jobs:,} jobs"
        note = (
            f"processor time; {which} in {found.wall_s:.1f} s, preemptions a job {found.preemptions / found.jobs:.2f}"
        )
        rate = 1.0 / found.job_s
        figures.append(Figure(f"philly, {policy}", rate, "jobs/s", f">= {wanted}", f"{note}; {PEERS}"))
        figures.append(
            Figure(f"philly, {policy}, wall", found.jobs / found.wall_s, "jobs/s", note="reading it is not in")
        )
    return figures


def growth(quick: bool) -> list[Figure]:
    """Cost of a job over sizes, and memory of the largest."""
    figures = []
    sizes = QUICK_SIZES if quick else SIZES
    for policy in WANTED:
        found = []
        for jobs in sizes:
            found.append(run(Generated(jobs, _gpus(jobs)), _gpus(jobs), policy))
            say(f"{jobs:,} jobs, {policy}: {found[-1]}")
            name = f"{jobs:,} jobs on {_gpus(jobs):,} GPUs, {policy}"
            note = f"processor time; preemptions a job {found[-1].preemptions / jobs:.2f}"
            figures.append(Figure(f"{name}, a job", 1e6 * found[-1].job_s, "us", note=note))
        figures += [_growth(policy, found), _memory(name, found[-1], quick)]
    return figures


def _gpus(jobs: int) -> int:
    """Number of GPUs for a number of jobs, in whole nodes."""
    return jobs // JOBS_A_GPU // GPUS_OF_NODE * GPUS_OF_NODE


def _growth(policy: str, runs: Sequence[Run]) -> Figure:
    least, most = runs[0], runs[-1]
    ratio = most.job_s / least.job_s / (math.log2(most.jobs) / math.log2(least.jobs))
    note = f"cost a job at {most.jobs:,} jobs over that at {least.jobs:,}, over the ratio of the logarithms"
    return Figure(f"growth, {policy}", ratio, "x", "<= 1", note)


def _memory(name: str, largest: Run, quick: bool) -> Figure:
    wanted = "" if quick else f"<= {MOST_BYTES / 1e9:g}"
    note = "of the whole process, with the trace" + ("; a smaller one, since --quick" if quick else "")
    return Figure(f"{name}, peak memory", largest.peak_bytes / 1e9, "GB", wanted, note)
