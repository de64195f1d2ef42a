"""Traces under our simulator and under its peers' own, side by side: for bench_simulate.py and tests/simulation.

The peers' results are in the folder of data: those of Tiresias (Gu et al., NSDI 2019) on 480 jobs drawn from Philly,
job by job; those of Gavel (Narayanan et al., OSDI 2020) on 30 jobs of its generator; those that Shockwave's authors
publish (Zheng et al., NSDI 2023) on 120 jobs. Starts and stops cost nothing in the first two, and so in ours; in
Shockwave's a job that did not run in the round before loses 20 s.

Differences and their reasons:

- Tiresias moves a job to the next queue when its next check finds it over the limit. It means to check after
  (limit - executed x GPUs) / GPUs seconds, and does so after (limit - executed) / GPUs, so jobs of several GPUs sink
  late; ours sink in time.
- Gavel allocates anew every 1,920 s at most, and a job that ends in between leaves its GPU idle until then, as
  long as more jobs are still to come; ours starts the next one at once. `with_gaps` adds the gaps, and only them.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ecoshare.core.events import Config
from ecoshare.core.policies import UnknownPolicy, named
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.result import UNFAIR, Finished
from ecoshare.simulation.simulator import Simulator, Watch
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.job_trace import Trace, TraceJob
from ecoshare.simulation.world import World
from scripts.bench.benchmarking import Figure

GPU = GPUS["v100"]

ROUND_S, RENEWAL_S = 360.0, 1920.0
"""Gavel's rounds in its results, and its `minimum_time_between_allocation_resets`."""

GAVELS = (("reset", RENEWAL_S), ("round", ROUND_S))
SHOCKWAVES = (("reset", 1000.0), ("round", 120.0))
"""Options of our policies in rounds, with the values of these simulators."""

EXACT_S = 1e-6
"""Two JCTs are equal but for rounding."""


@dataclass(frozen=True)
class Outcome:
    """Result of a simulator.

    Attributes:
        figures: Values by name: `mean JCT` and `makespan` (s), `worst rho`, `unfair jobs`; unpublished ones lack.
        jcts_s: JCTs by job; empty if they are not published.
    """

    figures: dict[str, float]
    jcts_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A comparison of one figure.

    Attributes:
        figure: Name of a figure of an outcome, or `JCTs`: the number of jobs with another JCT.
        unit: Unit of the difference: the figure's own, or `%` of theirs.
        wanted: Bound of the difference; empty if there is none.
    """

    figure: str
    unit: str
    wanted: str = ""
    note: str = ""


@dataclass(frozen=True)
class Case:
    """Trace under a policy of ours and a peer's.

    Attributes:
        bench: Name of a trace of `BENCHES`.
        policy: Our name of it.
        theirs: Their name of it.
        options: Options of our policy.
        past: File with the GPU-seconds of past jobs from which the policy learns, in the folder of data.
    """

    bench: str
    policy: str
    theirs: str
    checks: tuple[Check, ...]
    options: tuple[tuple[str, float], ...] = ()
    past: str = ""


_TO_THE_SECOND = (Check("mean JCT", "s", "<= 0.5"), Check("JCTs", "jobs", "<= 0"))
_NEAR = (Check("mean JCT", "%", "<= 3"), Check("makespan", "%", "<= 3"))
_TO_3_PERCENT = (
    Check("makespan", "%", "<= 3"),
    Check("mean JCT", "%", "<= 3"),
    Check("worst rho", "%", "<= 3"),
    Check("unfair jobs", "jobs", "<= 2"),
)
_LATE = "theirs demotes jobs of several GPUs late"
_GAPS = "theirs leaves the GPU idle until it allocates anew: see the same with its gaps"

CASES = (
    Case("philly480", "fifo", "fifo", _TO_THE_SECOND),
    Case("philly480", "smallest", "sjf", _TO_THE_SECOND),
    Case("philly480", "srtf", "shortest", _TO_THE_SECOND),
    Case("philly480", "srsf", "shortest-gpu", _TO_THE_SECOND),
    Case("philly480", "tiresias", "dlas-gpu", (Check("mean JCT", "%", "<= 2", _LATE), Check("JCTs", "jobs"))),
    Case("philly480", "gittins", "dlas-gpu-gittins", (Check("mean JCT", "%"),), past="yarn-gput1000.csv"),
    Case("gavel30", "fifo", "fifo", (Check("mean JCT", "s", note=_GAPS), Check("makespan", "s", note=_GAPS))),
    Case("gavel30", "allox", "allox", _NEAR, (("alpha", 1.0), *GAVELS)),
    Case("gavel30", "max-min", "max_min_fairness", _NEAR, GAVELS),
    Case("gavel30", "finish-time", "finish_time_fairness", _NEAR, GAVELS),
    Case("shockwave120", "allox", "allox", _TO_3_PERCENT, SHOCKWAVES),
    Case("shockwave120", "max-min", "max_min_fairness", _TO_3_PERCENT, SHOCKWAVES),
    Case("shockwave120", "finish-time", "finish_time_fairness", _TO_3_PERCENT, SHOCKWAVES),
    Case("shockwave120", "shockwave", "shockwave", _TO_3_PERCENT, (("round", 120.0),)),
)


@dataclass(frozen=True)
class Bench:
    """Trace, its cluster, and the peer's results.

    Attributes:
        theirs: Their result under each policy, by their name of it.
    """

    trace: Trace
    cluster: Cluster
    theirs: Callable[[str], Outcome]
    costs: Costs = NO_COSTS


def philly480(data: Path) -> Bench:
    """480 jobs on 15 nodes of 4 GPUs, of which only the number that is free counts."""
    folder = data / "tiresias"

    def theirs(policy: str) -> Outcome:
        with (folder / "results_philly480" / f"{policy}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        begin_s, end_s = min(float(row["submit_time"]) for row in rows), max(float(row["end_time"]) for row in rows)
        jcts_s = {row["job_id"]: float(row["JCT"]) for row in rows}
        return Outcome({"mean JCT": _mean(list(jcts_s.values())), "makespan": end_s - begin_s}, jcts_s)

    return Bench(read(folder / "philly480.csv"), Cluster(15, 4, GPU, spread=True), theirs)


def gavel30(data: Path) -> Bench:
    """30 jobs on one GPU."""
    folder = data / "gavel"
    runs = json.loads((folder / "results_1gpu.json").read_text())["runs"]

    def theirs(policy: str) -> Outcome:
        return Outcome({"mean JCT": runs[policy]["avg_jct_s"], "makespan": runs[policy]["total_duration_s"]})

    trace = read(folder / "30_jobs_1gpu.trace", speeds=folder / "simulation_throughputs.json")
    return Bench(trace, Cluster(1, 1, GPU), theirs)


def shockwave120(data: Path) -> Bench:
    """120 jobs with changing batch sizes on 32 GPUs; any GPUs will do."""
    folder = data / "shockwave"
    runs = json.loads((folder / "published_results.json").read_text())["runs"]

    def theirs(policy: str) -> Outcome:
        run = runs[policy]
        figures = {"mean JCT": run["avg_jct"], "makespan": run["makespan"], **_fairness(run["ftf_static"])}
        return Outcome(figures, {str(place): jct_s for place, jct_s in enumerate(run["jct_list"])})

    trace = read(
        folder / "120_jobs.trace",
        speeds=folder / "tacc_throughputs.json",
        schedules=folder / "batch_size_schedules.json",
    )
    return Bench(trace, Cluster(8, 4, GPU, spread=True), theirs, Costs(20.0, 0.0, 0.0, 0.0))


BENCHES = {"philly480": philly480, "gavel30": gavel30, "shockwave120": shockwave120}
"""Makers of the benches by name; each takes the folder of data."""


def ours(case: Case, bench: Bench, data: Path, watch: Watch | None = None) -> Outcome:
    """The case in our simulator.

    Raises:
        UnknownPolicy: There is no policy of this name.
    """
    named(case.policy)
    past = [float(word) for word in (data / "tiresias" / case.past).read_text().split()[1:]] if case.past else []
    config = Config(case.policy, 1, 1, preempt=True, options=case.options, past_gpu_s=tuple(past))
    result = Simulator(bench.trace, bench.cluster, config, World(bench.cluster.gpu), bench.costs).run(watch)
    rhos = [_static_rho(each, len(result.finished), bench.cluster.size) for each in result.finished]
    jcts_s = {each.name: each.jct_s for each in result.finished}
    mean_s = _mean([each.jct_s for each in result.finished])
    return Outcome({"mean JCT": mean_s, "makespan": result.makespan_s, **_fairness(rhos)}, jcts_s)


def compare(data: Path) -> list[Figure]:
    """All cases, our own planner, and Gavel's FIFO with its gaps."""
    made = {name: make(data) for name, make in BENCHES.items()}
    figures = [figure for case in CASES for figure in _figures(case, made[case.bench], data)]
    figures += own_planner(made["shockwave120"], data)
    gavel = made["gavel30"]
    checks = (Check("mean JCT", "s", "<= 0.5"), Check("makespan", "s", "<= 0.5"))
    found = with_gaps(gavel.trace)
    return figures + [_figure("gavel30, fifo with its gaps", each, found, gavel.theirs("fifo")) for each in checks]


def own_planner(bench: Bench, data: Path) -> list[Figure]:
    """Figures of `critical` on Shockwave's trace, with the goal to be about as good as Shockwave in everything."""
    found = ours(Case("shockwave120", "critical", "", ()), bench, data).figures
    wanted = {
        "makespan": (1.0, "s", "<= 24200"),
        "mean JCT": (1.0, "s", "<= 9900"),
        "worst rho": (1.0, "", "<= 1.7"),
        "unfair jobs": (100.0 / len(bench.trace.jobs), "%", "<= 5"),
    }
    return [
        Figure(f"shockwave120, critical: {name}", found[name] * scale, unit, bound)
        for name, (scale, unit, bound) in wanted.items()
    ]


def _figures(case: Case, bench: Bench, data: Path) -> list[Figure]:
    name = f"{case.bench}, {case.policy}"
    try:
        found = ours(case, bench, data)
    except UnknownPolicy:
        return [
            Figure(f"{name}: {each.figure}", None, each.unit, each.wanted, "no such policy") for each in case.checks
        ]
    return [_figure(name, each, found, bench.theirs(case.theirs)) for each in case.checks]


def _figure(name: str, check: Check, found: Outcome, peer: Outcome) -> Figure:
    """Figure of a difference, with both values in its note."""
    if check.figure == "JCTs":
        others = float(len(differing(found, peer)))
        return Figure(f"{name}: other JCTs", others, check.unit, check.wanted, f"of {len(peer.jcts_s)} jobs")
    mine, their = found.figures[check.figure], peer.figures[check.figure]
    value = abs(mine - their) * (100.0 / their if check.unit == "%" else 1.0)
    note = f"{mine:,.2f}, theirs {their:,.2f}" + (f"; {check.note}" if check.note else "")
    return Figure(f"{name}: {check.figure} off", value, check.unit, check.wanted, note)


def differing(found: Outcome, peer: Outcome) -> list[str]:
    """Names of the jobs that have another JCT."""
    return [name for name, jct_s in peer.jcts_s.items() if abs(found.jcts_s[name] - jct_s) > EXACT_S]


def with_gaps(trace: Trace) -> Outcome:
    """FIFO on one GPU like Gavel's simulator: ours, and the time until it looks for the next job.

    Rounds begin one after the other, and end with the job that runs, too. At the beginning of one, if jobs came or
    ended since the last allocation and that was `RENEWAL_S` ago, the GPU is given to the earliest job. If no job
    has it, time goes on to the next arrival; when all have come, the GPU is given at once. An allocation at 0 s
    counts as none.
    """
    coming, waiting = deque(trace.jobs), deque[TraceJob]()
    now_s = allocated_s = left_s = 0.0
    changed = False
    holder: TraceJob | None = None
    jcts_s: dict[str, float] = {}
    while coming or waiting or holder is not None:
        while coming and coming[0].arrival_s <= now_s:
            waiting.append(coming.popleft())
            changed = True
        if changed and (not allocated_s or now_s - allocated_s >= RENEWAL_S):
            allocated_s, changed = now_s, False
            if holder is None:
                holder = waiting.popleft()
                left_s = holder.service_s
        if holder is None:
            now_s, allocated_s = (coming[0].arrival_s, allocated_s) if coming else (now_s, 0.0)
            continue
        round_s = min(left_s, _whole(holder.phases[0].iteration_s))
        now_s, left_s = now_s + round_s, left_s - round_s
        if left_s <= EXACT_S:
            jcts_s[holder.name], holder, changed = now_s - holder.arrival_s, None, True
    return Outcome({"mean JCT": _mean(list(jcts_s.values())), "makespan": now_s - trace.jobs[0].arrival_s}, jcts_s)


@cache
def _whole(iteration_s: float) -> float:
    """A round of whole iterations."""
    return int(ROUND_S / iteration_s) * iteration_s


def _static_rho(job: Finished, jobs: int, gpus: int) -> float:
    """Finish-time ratio by Shockwave's authors: against a share of the cluster among all jobs of the trace."""
    return job.jct_s / (job.service_s * max(1.0, jobs / gpus))


def _fairness(rhos: Sequence[float]) -> dict[str, float]:
    return {"worst rho": max(rhos), "unfair jobs": float(sum(rho > UNFAIR for rho in rhos))}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
