"""PAL on GPUs of different speeds: mean JCT with the speeds known, over the same policy that takes all GPUs as alike.

64 GPUs have the speeds that PAL's authors measured on the Longhorn cluster (pal_calibration.py, `--data DIR`). A gang
may span nodes, without a cost, and the policy knows that (`across=1`). A stop takes 5 s and another start 30 s, both
ways. Two kinds of jobs (pal_traces.py), with five seeds each: 400 invented jobs of one to eight GPUs at a load of 0.9,
and 160 jobs as in PAL's paper. Bounds of what placement can reach stand beside each ratio (pal_bound.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import geometric_mean

from ecoshare.contrib.policies.pal import ROUND_S
from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.world import World
from scripts import pal_calibration
from scripts.bench.benchmarking import DataOptions, Figure, add_data, run_benchmark, say
from scripts.bench.pal_bound import Speeds, fastest, ideal_jct_s
from scripts.bench.pal_traces import invented, philly

SEEDS, QUICK_SEEDS = 5, 1
NODES = Cluster(16, 4, GPUS["v100"], spread=True)
COSTS = Costs(stop_s=5.0, restart_s=30.0)
NAME = "mean JCT, speeds known over blind"


def measure(options: DataOptions) -> list[Figure]:
    """Ratios of both kinds of jobs, with their bounds; a note if no folder is given."""
    if options.data is None:
        return [Figure(NAME, None, "", note="give the folder of the measured GPUs with --data")]
    data, seeds = options.data, QUICK_SEEDS if options.quick else SEEDS
    drawn = [pal_calibration.draw(data / "pal" / "longhorn", NODES, seed) for seed in range(seeds)]
    return [
        *_figures("", drawn, invented, "<= 0.95"),
        *_figures("jobs as in PAL's paper, ", drawn, lambda seed: philly(data, seed), ""),
    ]


def _figures(what: str, drawn: Sequence[Speeds], jobs: Callable[[int], Trace], wanted: str) -> list[Figure]:
    """Geometric means of the ratios of one kind of jobs, the part of what is possible, and each seed's ratio."""
    ratios = [known_over_blind(jobs(seed), speeds) for seed, speeds in enumerate(drawn)]
    for seed, of in enumerate(ratios):
        say(f"{what}seed {seed}: " + ", ".join(f"{way or 'pal'} {ratio:.3f}" for way, ratio in of.items()))
    mean = {way: geometric_mean([of[way] for of in ratios]) for way in ratios[0]}
    seeds = f"geometric mean of {len(ratios)} seeds"
    return [
        Figure(f"{what}{NAME}", mean[""], "x", wanted, seeds),
        Figure(f"{what}the same if running jobs stay", mean["jobs stay"], "x", note=seeds),
        Figure(f"{what}bound: free moves, gangs as fast as their mean GPU", mean["ideal"], "x", note=seeds),
        Figure(f"{what}bound: all GPUs as the fastest of each class", mean["fastest"], "x", note=seeds),
        Figure(f"{what}part of the gain with free moves", 100 * (1 - mean[""]) / (1 - mean["ideal"]), "%"),
        *(Figure(f"{what}{NAME}, seed {seed}", of[""], "x", "<= 1") for seed, of in enumerate(ratios)),
    ]


def known_over_blind(trace: Trace, speeds: Speeds) -> dict[str, float]:
    """Mean JCT over that with `blind=1`, for `pal` (""), `pal` without moves, and the two bounds."""
    blind_s = _jct_s(trace, speeds, blind=1.0)
    known_s = {
        "": _jct_s(trace, speeds),
        "jobs stay": _jct_s(trace, speeds, move=float("inf")),
        "ideal": ideal_jct_s(trace, speeds, ROUND_S),
        "fastest": _jct_s(trace, fastest(speeds), blind=1.0),
    }
    return {way: jct_s / blind_s for way, jct_s in known_s.items()}


def _jct_s(trace: Trace, speeds: Speeds, **options: float) -> float:
    """Mean JCT (s) of `pal` with these options."""
    config = Config("pal", 1, 1, preempt=True, options=tuple(sorted({"across": 1.0, **options}.items())))
    cluster = replace(NODES, speeds=speeds)
    simulator = Simulator(trace, cluster, config, World(cluster.gpu, speeds=speeds), COSTS)
    return float(simulator.run().jcts_s.mean())


def main() -> None:
    """Run it from the command line."""
    run_benchmark("pal", __doc__, measure, DataOptions, add_data)


if __name__ == "__main__":
    main()
