"""The simulator against its peers' own, Salus' headline, and speed and memory of simulations.

Traces and the peers' results come from a folder (`--data DIR`); without it only generated traces are simulated.
simulate_peers.py has the comparisons and the reasons for differences, simulate_speed.py the measurement of speed,
simulate_real.py real runs.

Salus' headline (Yu and Chowdhury, MLSys 2020): 100 jobs on one GPU have a mean JCT of 170.6 min under FIFO, 53.4 under
SRTF, 145.5 under PACK and 96.6 under FAIR. The trace is not public. Ours are drawn from its catalogue, or without it
from its models and lengths. The load was chosen so that FIFO has its 170.6 min on average over 200 seeds of the
catalogue, so only the figures of the other policies say something. Jobs of 1, 5 and 10 minutes cannot give SRTF its
3.19x at any load: from 0.8 to 20 times the work that the GPU can do, the median ratio is at most 1.7 with the catalogue
and 1.9 without. Jobs share the GPU as in a live run: one lane, by turns, as many as its memory allows, at the costs
that the live runtime has measured.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.generate import generate
from ecoshare.simulation.world import World
from scripts.bench import simulate_peers, simulate_real, simulate_speed
from scripts.bench.benchmarking import (
    DataOptions,
    Figure,
    add_data,
    median,
    percentile,
    run_benchmark,
    say,
)

PAPER_MIN = {"fifo": 170.6, "srtf": 53.4, "pack": 145.5, "fair": 96.6}
PAPER_RATIO = 3.19

SALUS_JOBS, SALUS_GPU = 100, "p100"
"""Number of jobs and GPU of the paper."""

MOST_IN_LANE = 64

SEEDS, QUICK_SEEDS = 200, 5
SLOW_SEEDS, QUICK_SLOW_SEEDS = 20, 1
"""Number of seeds for FAIR, which simulates every turn and takes some seconds a trace."""


def measure(options: DataOptions) -> list[Figure]:
    """All figures."""
    seeds = (QUICK_SLOW_SEEDS, QUICK_SEEDS) if options.quick else (SLOW_SEEDS, SEEDS)
    figures = []
    if options.data is None:
        figures.append(Figure("traces and their results", None, "", note="give their folder with --data"))
    else:
        figures += simulate_peers.compare(options.data)
        figures += salus(*seeds, options.data)
    if options.data is None or not options.quick:
        figures += salus(*seeds, None)
    if options.data is not None:
        figures += simulate_speed.philly(options.data, options.quick)
    return [*figures, *simulate_speed.growth(options.quick), *simulate_real.errors(options.quick)]


def salus(few: int, many: int, data: Path | None) -> list[Figure]:
    """Mean of the mean JCTs under each policy, and SRTF over FIFO.

    Args:
        few: Seeds for FAIR.
        many: Seeds for the others.
    """
    source = "published lengths" if data is None else "catalogue"
    means_min = {
        policy: [mean_jct_min(policy, seed, data) for seed in range(few if policy == "fair" else many)]
        for policy in PAPER_MIN
    }
    say(f"salus, {source}: " + ", ".join(f"{policy} {fmean(each):.1f} min" for policy, each in means_min.items()))
    figures = []
    for policy, each in means_min.items():
        note = f"paper {PAPER_MIN[policy]}; {len(each)} seeds"
        if policy == "fifo":
            note += "; the load was chosen for it" if data is not None else "; at the load chosen for the catalogue"
        else:
            note += f", {fmean(each) / fmean(means_min['fifo'][: len(each)]):.2f} of fifo's there"
        figures.append(Figure(f"salus, {source}: {policy}, mean JCT", fmean(each), "min", note=note))
    ratios = [fifo / srtf for fifo, srtf in zip(means_min["fifo"], means_min["srtf"], strict=True)]
    spread = f"{percentile(ratios, 0.1):.2f} to {percentile(ratios, 0.9):.2f}"
    note = f"paper {PAPER_RATIO}; median of {many} seeds, p10 to p90 {spread}"
    return [*figures, Figure(f"salus, {source}: srtf over fifo", median(ratios), "x", note=note)]


def mean_jct_min(policy: str, seed: int, data: Path | None) -> float:
    """Mean JCT (minutes) of a trace of Salus' kind."""
    trace = generate("salus", SALUS_JOBS, seed, data)
    gpu = GPUS[SALUS_GPU]
    config = Config(policy, 1, MOST_IN_LANE)
    return float(Simulator(trace, Cluster(1, 1, gpu), config, World(gpu), Costs()).run().jcts_s.mean()) / 60.0


def main() -> None:
    """Run it from the command line."""
    run_benchmark("simulate", __doc__, measure, DataOptions, add_data)


if __name__ == "__main__":
    main()
