"""PAL on GPUs of different speeds: mean JCT with the speeds known, over the same policy that takes all GPUs as alike.

64 GPUs have the speeds that PAL's authors measured on the Longhorn cluster (pal_calibration.py, `--data DIR`). 400
invented jobs come at a load of 0.9: one GPU or a gang, 10 minutes to 5 hours. Gangs may span nodes, without a cost.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random
from statistics import geometric_mean

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.gpus import GPUS
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from ecoshare.simulation.world import World
from scripts import pal_calibration
from scripts.bench.benchmarking import DataOptions, Figure, add_data, run_benchmark, say

SEEDS, QUICK_SEEDS = 5, 1
NODES = Cluster(16, 4, GPUS["v100"], spread=True)


def measure(options: DataOptions) -> list[Figure]:
    """Ratio of each seed, and their geometric mean; a note if no folder is given."""
    if options.data is None:
        return [Figure("mean JCT", None, "", note="give the folder of the measured GPUs with --data")]
    ratios = []
    for seed in range(QUICK_SEEDS if options.quick else SEEDS):
        ratios.append(known_over_blind(options.data / "pal" / "longhorn", seed))
        say(f"seed {seed}: {ratios[-1]:.3f}")
    name = "mean JCT, speeds known over blind"
    return [
        Figure(name, geometric_mean(ratios), "x", "<= 0.99", f"geometric mean of {len(ratios)} seeds"),
        *(Figure(f"{name}, seed {seed}", ratio, "x", "<= 1") for seed, ratio in enumerate(ratios)),
    ]


def known_over_blind(folder: Path, seed: int) -> float:
    """Mean JCT of `pal` with the speeds known, over that with `blind=1`, on GPUs and jobs drawn from a seed."""
    cluster = replace(NODES, speeds=pal_calibration.draw(folder, NODES, seed))
    means = []
    for blind in (0.0, 1.0):
        config = Config("pal", 1, 1, preempt=True, options=(("blind", blind),))
        simulator = Simulator(_jobs(seed), cluster, config, World(cluster.gpu, speeds=cluster.speeds), Costs())
        means.append(float(simulator.run().jcts_s.mean()))
    return means[0] / means[1]


def _jobs(seed: int, jobs: int = 400, gpus: int = 64, load: float = 0.9) -> Trace:
    """Jobs of one GPU and gangs, equally many of each class, of 10 minutes to 5 hours (90 %)."""
    random, sizes, at_s = Random(seed), (1, 1, 1, 2, 4, 8), 0.0
    mean_gpu_s = sum(sizes) / len(sizes) * exp(8.2 + 0.5)
    made = []
    for number in range(jobs):
        at_s += random.expovariate(load * gpus / mean_gpu_s)
        service_s = random.lognormvariate(8.2, 1.0)
        job_class = random.choice(pal_calibration.CLASSES)
        made.append(TraceJob(f"j{number}", job_class, at_s, (Phase(10, service_s / 10),), random.choice(sizes)))
    return Trace("made.csv", "made", tuple(made), "")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("pal", __doc__, measure, DataOptions, add_data)


if __name__ == "__main__":
    main()
