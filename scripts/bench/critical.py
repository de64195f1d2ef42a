"""Our own planner, `critical`, beside the policies of Shockwave's comparison, on traces that are drawn.

Each draw has the form of Shockwave's trace: jobs like those of its 120 jobs, drawn with replacement, without changes of
the batch size. Lengths vary by a lognormal factor (sigma 0.3), and arrivals are a Poisson process. A draw has 32 to 256
GPUs, 3.5 jobs for each, and a load of 0.5 to 1.5: the work that comes in a second over what the GPUs can do in one.
Times are simulated, with restarts of 20 s. All policies but `srtf` and `srsf` decide in rounds of 120 s.

Figures are medians over the draws, of each policy over the least of all but `srtf` and `srsf` in the same draw:
makespan, mean JCT and worst finish-time ratio as Shockwave's authors count it; and the number of jobs with a ratio
above 1.1. `srtf` and `srsf` stand beside them: they stop jobs at each event, and have no rule for the end. `critical`
was worked on with the draws from 0 on. The draws from 1000 on were first looked at when it was done.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.traces.job_trace import Phase, Trace, in_order
from scripts.bench.benchmarking import DataOptions, Figure, add_data, median, run_benchmark, say
from scripts.bench.simulate_peers import GPU, SHOCKWAVES, Bench, Case, Outcome, ours, shockwave120

DRAWS, QUICK_DRAWS = 24, 2
POLICIES = {
    "critical": (),
    "shockwave": (("round", 120.0),),
    "finish-time": SHOCKWAVES,
    "max-min": SHOCKWAVES,
    "allox": SHOCKWAVES,
    "srsf": (),
    "srtf": (),
}
"""Policies, and their options."""

BESIDE = ("srsf", "srtf")
"""Policies that stand beside the others: shortest first alone, which is asked for none of the other figures."""

OURS = "critical"
GPUS, PER_NODE = (32, 64, 128, 256), 4
JOBS_PER_GPU, LOADS, SPREAD = 3.5, (0.5, 1.5), 0.3
RESTART_S = 20.0
MEASURES = ("makespan", "mean JCT", "worst rho")
UNFAIR = "unfair jobs"
BEST = 1.005
"""Largest ratio to the least of all that counts as the best."""


class CriticalOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        draws: Number of draws; None for the default.
        seed: First draw.
        workers: Processes.
    """

    draws: int | None
    seed: int
    workers: int | None


@dataclass(frozen=True)
class Draw:
    """Drawn trace with its cluster."""

    trace: Trace
    gpus: int
    load: float


def draw(data: Path, seed: int) -> Draw:
    """Trace of a seed."""
    models, random = shockwave120(data).trace.jobs, Random(f"critical {seed}")
    gpus, load = random.choice(GPUS), random.uniform(*LOADS)
    jobs, gaps = [], []
    for number in range(round(JOBS_PER_GPU * gpus)):
        like = random.choice(models)
        iterations = round(sum(each.iterations for each in like.phases) * random.lognormvariate(0.0, SPREAD))
        phase = Phase(max(1, iterations), like.phases[0].iteration_s)
        jobs.append(replace(like, name=f"j{number}", phases=(phase,)))
        gaps.append(random.expovariate(1.0))
    work_s = sum(each.gpus * each.service_s for each in jobs)
    scale = work_s / gpus / load / sum(gaps)
    at_s, come = 0.0, []
    for job, gap in zip(jobs, gaps, strict=True):
        come.append(replace(job, arrival_s=at_s))
        at_s += gap * scale
    return Draw(Trace(f"draw {seed}", "drawn", in_order(come), ""), gpus, load)


def outcomes(data: Path, seed: int) -> dict[str, dict[str, float]]:
    """Figures of each policy on a draw."""
    drawn = draw(data, seed)
    cluster, costs = Cluster(drawn.gpus // PER_NODE, PER_NODE, GPU, spread=True), Costs(RESTART_S, 0.0, 0.0, 0.0)
    bench = Bench(drawn.trace, cluster, _no_peer, costs)
    found = {
        policy: dict(ours(Case("drawn", policy, "", (), options), bench, data).figures)
        for policy, options in POLICIES.items()
    }
    own = ", ".join(f"{name} {found[OURS][name] / _least(found, name):.3f}" for name in MEASURES)
    say(f"draw {seed}, {drawn.gpus} GPUs, load {drawn.load:.2f}: {OURS} over the least: {own}")
    return found


def _no_peer(_policy: str) -> Outcome:
    raise AssertionError("no peer has run this trace")


def _least(found: dict[str, dict[str, float]], measure: str) -> float:
    return min(each[measure] for policy, each in found.items() if policy not in BESIDE)


def measure(options: CriticalOptions) -> list[Figure]:
    """All figures."""
    if options.data is None:
        return [Figure("drawn traces", None, "", note="give the folder of the traces with --data")]
    draws = options.draws or (QUICK_DRAWS if options.quick else DRAWS)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        found = list(pool.map(partial(outcomes, options.data), range(options.seed, options.seed + draws)))
    return [figure for policy in POLICIES for figure in _figures(policy, found)]


def _figures(policy: str, found: Sequence[dict[str, dict[str, float]]]) -> list[Figure]:
    figures = []
    for name in MEASURES:
        ratios = [each[policy][name] / _least(each, name) for each in found]
        best = sum(ratio <= BEST for ratio in ratios)
        note = f"at most {max(ratios):.3f}; within {100.0 * (BEST - 1.0):.1f} % of the least in {best} of {len(found)}"
        wanted = "<= 1" if policy == OURS else ""
        figures.append(Figure(f"{policy}: {name} over the least", median(ratios), "x", wanted, note))
    unfair = [each[policy][UNFAIR] for each in found]
    wanted = "<= 0" if policy == OURS else ""
    return [*figures, Figure(f"{policy}: {UNFAIR}, most of a draw", max(unfair), "jobs", wanted)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add_data(parser)
    parser.add_argument("--draws", type=int, help=f"number of draws [{DRAWS}]")
    parser.add_argument("--seed", type=int, default=0, help="first draw [0]")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes; no figure depends on it")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("critical", __doc__, measure, CriticalOptions, add_options)


if __name__ == "__main__":
    main()
