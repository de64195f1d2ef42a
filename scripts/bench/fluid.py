"""Simulated searches for hyper-parameters with trials of changing width, against one trial a GPU and equal shares.

The figure is the paper's: percent by which the makespan is longer with one trial a GPU (`fifo`, in the order of the
draws); 100 means half of the time. Fluid (Yu et al., MLSys 2021) speeds up synchronous BOHB by 100 %
(abstract in the proceedings' index) to 200 % (abstract of the paper), BOHB and ASHA by 30 %, measured on a cluster.
Ours are simulated (`ecoshare/simulation/traces/generate.py`), so the assumptions decide:

- a trial on twice as many GPUs of a node has 1.8 times the speed: in Gavel's table of the V100 the median of 19 types
  of jobs on 2 GPUs is 1.81. On 8 it is 6.5, which is more than our 5.8, on 4 it is 2.3, which is less than our 3.2;
- two trials on a GPU have 0.625 of their speed each, as the median of 26 types in the same table beside their like;
- to start costs 5 s, to stop 2 s, to start again 3 s more: a CUDA context and a state that is saved and loaded, round
  numbers of ours. The policy believes that a restart costs 10 s;
- the time of an iteration alone is known from the beginning, and true. A profile costs nothing here;
- learning curves and lengths are invented. 8 GPUs of one node, up to 8 for a trial, two trials on a GPU, 81 trials (all
  in all 143 in the brackets of BOHB), a whole trial of 81 minutes, give or take half of that.

Live jobs cannot be resized, so their figure is the one with one GPU at most. The weight of each assumption shows in the
figures that change it. ASHA decides by the order in which trials reach a rung, so two runs of it do not do the same
work; its second figure is by work done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.generate import DOUBLING, SPREAD, search
from ecoshare.simulation.world import World
from scripts.bench.benchmarking import Figure, Options, median, percentile, run_benchmark, say

PAPER = {
    "bohb": ("synchronous BOHB", "100 to 200", ">= 100"),
    "halving": ("synchronous halving", "100 to 200, for synchronous BOHB", ">= 100"),
    "bohb-parallel": ("BOHB, all brackets at once", "30", ">= 30"),
    "asha": ("ASHA", "30", ">= 30"),
}

TRIALS, SEEDS, QUICK_SEEDS = 81, 20, 3
COSTS = Costs(start_s=5.0, stop_s=2.0, restart_s=3.0)


@dataclass(frozen=True)
class Assumed:
    """Assumptions of a simulation.

    Attributes:
        beside: Speed of each of two trials on a GPU, over that alone.
        on_one: Most trials on a GPU.
        spread: Standard deviation of the logarithm of an iteration's length.
    """

    gpus: int = 8
    widest: int = 8
    doubling: float = DOUBLING
    beside: float = 0.625
    on_one: int = 2
    spread: float = SPREAD
    costs: Costs = COSTS


USUAL = Assumed()

OTHERS = {
    "linear on several GPUs": replace(USUAL, doubling=2.0),
    "1.5 on twice as many": replace(USUAL, doubling=1.5),
    "nothing gained by two on a GPU": replace(USUAL, beside=0.5),
    "0.85 each of two on a GPU": replace(USUAL, beside=0.85),
    "one on a GPU": replace(USUAL, on_one=1),
    "one GPU for a trial, as live": replace(USUAL, widest=1),
    "starting and stopping free": replace(USUAL, costs=NO_COSTS),
    "32 GPUs": replace(USUAL, gpus=32),
}


def measure(options: Options) -> list[Figure]:
    """All figures."""
    seeds = QUICK_SEEDS if options.quick else SEEDS
    figures = []
    for kind, (name, paper, wanted) in PAPER.items():
        alone, fluid, equal = (results(kind, policy, USUAL, seeds) for policy in ("fifo", "fluid", "equal"))
        figures.append(improvement(f"{name}: fluid", alone, fluid, wanted, f"paper {paper}"))
        figures.append(improvement(f"{name}: equal shares", alone, equal))
        if kind == "asha":
            figures.append(improvement(f"{name}: fluid, by work done", alone, fluid, by_work=True))
            figures.append(improvement(f"{name}: equal shares, by work done", alone, equal, by_work=True))
    for name, assumed in OTHERS.items():
        alone, fluid = (results("bohb", policy, assumed, seeds) for policy in ("fifo", "fluid"))
        figures.append(improvement(f"synchronous BOHB: fluid, {name}", alone, fluid))
    for name, assumed in {"": USUAL, ", lengths of 2.7 to 1": replace(USUAL, spread=1.0)}.items():
        equal, fluid = (results("bohb", policy, assumed, seeds) for policy in ("equal", "fluid"))
        figures.append(improvement(f"synchronous BOHB: fluid over equal shares{name}", equal, fluid))
    return figures


def results(kind: str, policy: str, assumed: Assumed, seeds: int) -> list[SimulationResult]:
    """Results of `seeds` searches of a kind."""
    say(f"{kind}, {policy}, {assumed}")
    gpu = GPUS["v100"]
    lanes = 1 if policy == "fifo" else assumed.on_one
    world, cluster = World(gpu, beside=assumed.beside), Cluster(1, assumed.gpus, gpu)
    made = []
    for seed in range(seeds):
        trace = search(kind, TRIALS, seed, assumed.gpus, assumed.widest, assumed.doubling, assumed.spread)
        made.append(Simulator(trace, cluster, Config(policy, lanes, 1), world, assumed.costs).run())
    return made


def improvement(
    name: str,
    before: list[SimulationResult],
    after: list[SimulationResult],
    wanted: str = "",
    paper: str = "",
    by_work: bool = False,
) -> Figure:
    """Percent by which the makespan was longer before, median over the seeds."""
    percents = []
    for one, other in zip(before, after, strict=True):
        ratio = one.makespan_s / other.makespan_s
        if by_work:
            ratio *= other.work_s / one.work_s
        percents.append(100.0 * (ratio - 1.0))
    spread = f"p10 to p90 {percentile(percents, 0.1):.0f} to {percentile(percents, 0.9):.0f}, {len(percents)} seeds"
    return Figure(name, median(percents), "%", wanted, f"{paper}; {spread}" if paper else spread)


def main() -> None:
    """Run it from the command line."""
    run_benchmark("fluid", __doc__, measure, Options)


if __name__ == "__main__":
    main()
