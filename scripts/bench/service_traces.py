"""Services in the simulator: the loads of DISB, Orion's gaps, Salus' policies, and a real run against its simulation.

The loads (`--data DIR`) run beside one training job with iterations of 20 ms, in one lane. The target of a task with
times is 50 ms. Tasks without times are closed loops of one client, with a target of 1 s. DISB names models but
no times, so the times of their batches are assumed (`ANSWERS_S`).

Salus' latencies are of closed loops beside training. There an operation is the smallest part of a job, so the simulated
training job has iterations of 1 ms. `fair` is a lane by shares, `preempt` a lane in which services always press, `pack`
a lane for each job. Nothing is known of `mix`, so it is left out. A pair of policies counts if the measured figures
differ by more than 5 %. The order is not reproduced: the measured figures hardly differ, except in zyc3, in which the
jobs overlapped in part only (a service beside three jobs answers in 9.7 ms there, and beside one in 12.4 ms).

The real run has a small service with drawn arrivals beside training on the processors. It is simulated from its record.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean

from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.commands import Command
from ecoshare.core.events import Config, Event, IterationsDone
from ecoshare.jobs.request_trace import read_trace
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, Trace, TraceJob
from ecoshare.simulation.world import World
from scripts.bench.benchmarking import JOBS, DataOptions, Figure, add_data, median, run_benchmark, say
from scripts.bench.simulate_real import recorded

ITERATION_S = 0.02
"""Iteration (s) of the training job beside the loads."""

TARGET_S, LOOSE_S = 0.05, 1.0
"""Targets (s) of tasks with times, and of closed loops."""

ANSWERS_S = {"vgg19": 0.003, "resnet152": 0.008, "densenet201": 0.012, "inceptionv3": 0.006, "distilbert": 0.004}
"""Assumed time (s) of a batch of one request."""

SPREAD = 0.05
"""Assumed standard deviation of the time of a batch or of an iteration / its mean."""

WORKLOADS = ("A", "B", "C", "REAL")
OPERATION_S = 0.001
APART = 0.05
"""Relative difference beyond which two measured figures have an order."""

REQUESTS, QUICK_REQUESTS, RATE_PER_S = 600, 240, 30.0
ROUNDS = 3
STEPS_FOR_REQUEST = 3
"""Iterations of the training job of the real run for each request, so that it trains as long as requests come."""

CLUSTER = Cluster(1, 1, GPUS["v100"])


def measure(options: DataOptions) -> list[Figure]:
    """Figures of all three parts; a note in place of the first two if no folder is given."""
    found = [] if options.data is None else [*_loads(options.data, options.quick), *_salus(options.data / "salus")]
    if options.data is None:
        found = [Figure("loads of DISB and Orion", None, "", note="give the folder of the traces with --data")]
    return [*found, *_real_runs(*((QUICK_REQUESTS, 1) if options.quick else (REQUESTS, ROUNDS)))]


# Loads of DISB and Orion's gaps


def _loads(data: Path, quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        for workload in WORKLOADS[-1:] if quick else WORKLOADS:
            path = data / "disb" / f"workload_{workload}.json"
            yield from _figures(f"DISB {workload}", _disb(path, Path(name)), json.loads(path.read_text())["time"])
        gaps = data / "orion" / "inter_arrival_times.json"
        times_s = read_trace(gaps, str(gaps)).arrivals_s
        if quick:
            times_s = times_s[:1000]
        ranker = _service("orion", ANSWERS_S["resnet152"], TARGET_S, _written(Path(name) / "orion", times_s))
        yield from _figures("Orion's gaps", [ranker], times_s[-1])


def _disb(path: Path, folder: Path) -> Iterator[TraceJob]:
    """Services of a workload."""
    for task in json.loads(path.read_text())["tasks"]:
        name, answer_s = task["id"], ANSWERS_S[task["client"]["name"].partition("_")[0]]
        if task["load"]["type"] == "continuous":
            yield _service(name, answer_s, LOOSE_S, RequestSource(clients=1))
        else:
            times_s = read_trace(path, str(path), name).arrivals_s
            yield _service(name, answer_s, TARGET_S, _written(folder / f"{path.stem}-{name}", times_s))


def _written(path: Path, times_s: Sequence[float]) -> RequestSource:
    """Source with these arrivals, which are written to a file."""
    path.write_text("".join(f"{each!r}\n" for each in times_s))
    return RequestSource(str(path))


def _service(name: str, answer_s: float, target_s: float, source: RequestSource) -> TraceJob:
    service = ServiceSpec(target_s, (1, 2, 4, 8), requests=source)
    answer = AnswerTime(answer_s / 2, answer_s / 2)
    return TraceJob(name, name, 0.0, (Phase(1, answer_s),), service=service, answer=answer, spread=SPREAD)


def _figures(load: str, given: Iterator[TraceJob] | Sequence[TraceJob], until_s: float) -> Iterator[Figure]:
    """Latencies of the tasks with times, and the speed of the training job while they come."""
    services = list(given)
    training = TraceJob("training", "training", 0.0, (Phase(int(until_s / ITERATION_S), ITERATION_S),), spread=SPREAD)
    told: list[IterationsDone] = []

    def watch(event: Event, _: list[Command]) -> None:
        if isinstance(event, IterationsDone) and event.job == "training" and event.at_s <= until_s:
            told.append(event)

    found = _simulated([training, *services], 1, watch)
    timed = {job.name: found[job.name] for job in services if _target_s(job) == TARGET_S}
    for name, each in (timed or found).items():
        late = 100 * (each.late + each.refused) / each.arrived
        say(f"{load}, {name}: p50 {_ms(each.p50_s):.1f} ms, p99 {_ms(each.p99_s):.1f} ms, {late:.2f} % late")
    note = f"of {len(timed)} tasks" if len(timed) > 1 else "" if timed else "closed loops alone: their target is 1 s"
    shown = list((timed or found).values())
    late_share = max((each.late + each.refused) / each.arrived for each in shown)
    yield Figure(f"{load}: p50", max(_ms(each.p50_s) for each in shown), "ms", note=note and f"largest {note}")
    yield Figure(f"{load}: p99", max(_ms(each.p99_s) for each in shown), "ms", note=note and f"largest {note}")
    yield Figure(f"{load}: late", 100 * late_share, "%", "<= 1", note and f"largest {note}")
    done_s = told[-1].usage.iterations * ITERATION_S / told[-1].at_s
    yield Figure(f"{load}: speed of training", 100 * done_s, "%", note="of that alone")


def _target_s(job: TraceJob) -> float:
    assert job.service is not None, "it is a service"
    return job.service.p99_s


def _simulated(jobs: Sequence[TraceJob], lanes: int, watch: object = None) -> dict[str, ServiceSummary]:
    """Summary of each service of a simulation, by name."""
    config = Config("fair", lanes, len(jobs))
    simulator = Simulator(Trace("bench", "bench", tuple(jobs), ""), CLUSTER, config, World(CLUSTER.gpu), Costs())
    result = simulator.run(watch)  # type: ignore[arg-type]
    return {each.name: each.service for each in result.services if each.service is not None}


def _ms(value_s: float | None) -> float:
    return float("nan") if value_s is None else 1e3 * value_s


# Salus' policies


@dataclass(frozen=True)
class _Measured:
    """One job of one of Salus' runs. The latencies (ms) of training jobs are absent."""

    model: str
    mean_ms: float | None
    p99_ms: float | None
    steps: int


def _salus(folder: Path) -> Iterator[Figure]:
    """How far the simulated order of the policies is the measured one."""
    runs: dict[str, dict[str, list[_Measured]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader((folder / "templogs_summary.csv").open(encoding="utf-8")):
        mean_ms, p99_ms = (float(row[key]) if row[key] else None for key in ("lat_mean_ms", "lat_p99_ms"))
        runs[row["scenario"]][row["policy"]].append(_Measured(row["model"], mean_ms, p99_ms, int(row["steps"])))
    alone_ms: dict[str, float] = {}
    for each in (job for run in runs.values() for jobs in run.values() for job in jobs):
        if each.mean_ms is not None:
            alone_ms[each.model] = min(each.mean_ms, alone_ms.get(each.model, each.mean_ms))
    pairs = agreed = 0
    widest = 0.0
    for scenario, by_policy in runs.items():
        if "fair" not in by_policy:
            continue
        simulated = {policy: _policy(by_policy["fair"], policy, alone_ms) for policy in ("fair", "preempt", "pack")}
        measured = {policy: _latencies(by_policy[policy]) for policy in simulated}
        say(f"Salus {scenario}, mean and p99 (ms): measured {measured}, simulated {simulated}")
        for (one, two), of in ((pair, of) for pair in combinations(simulated, 2) for of in (0, 1)):
            ratio = measured[one][of] / measured[two][of]
            widest = max(widest, abs(ratio - 1.0) if scenario != "zyc3" else 0.0)
            if abs(ratio - 1.0) > APART:
                pairs += 1
                agreed += (simulated[one][of] < simulated[two][of]) == (ratio < 1.0)
    yield Figure("Salus: pairs of policies with a measured order", pairs, "", note="of 30; means and p99 of five runs")
    yield Figure("Salus: these pairs in the same order", agreed, "", note="simulated")
    yield Figure("Salus: largest measured difference outside of zyc3", 100 * widest, "%")


def _latencies(jobs: Sequence[_Measured]) -> tuple[float, float]:
    """Mean over the services of a run: mean and p99 (ms)."""
    served = [job for job in jobs if job.mean_ms is not None]
    return mean(job.mean_ms or 0.0 for job in served), mean(job.p99_ms or 0.0 for job in served)


def _policy(jobs: Sequence[_Measured], policy: str, alone_ms: dict[str, float]) -> tuple[float, float]:
    """Mean and p99 (ms) over the services of a run, simulated under one of Salus' policies."""
    made = []
    for number, job in enumerate(jobs):
        if job.mean_ms is None:
            made.append(TraceJob(f"{number}", job.model, 0.0, (Phase(60_000, OPERATION_S),)))
            continue
        answer_s = alone_ms[job.model] / 1e3
        target_s = answer_s if policy == "preempt" else 1e3
        service = ServiceSpec(target_s, (1,), requests=RequestSource(clients=1, count=job.steps))
        made.append(TraceJob(f"{number}", job.model, 0.0, (Phase(1, answer_s),), service=service))
    found = _simulated(made, len(made) if policy == "pack" else 1).values()
    return mean(_ms(each.mean_s) for each in found), mean(_ms(each.p99_s) for each in found)


# A real run


def _real_runs(requests: int, rounds: int) -> Iterator[Figure]:
    """Percentiles of a service in real runs, against those of their simulations: the medians of the errors."""
    found = [_real_run(requests) for _ in range(rounds)]
    for of, (key, wanted) in enumerate((("p50", "<= 10"), ("p99", "<= 25"))):
        errors = [100 * abs(each[of][1] / each[of][0] - 1) for each in found]
        words = ", ".join(
            f"{real_ms:.1f} and {simulated_ms:.1f}" for real_ms, simulated_ms in (each[of] for each in found)
        )
        yield Figure(f"real run: error of {key}", median(errors), "%", wanted, f"ms, real and simulated: {words}")


def _real_run(requests: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """p50 and p99 (ms) of a service: each in a real run, and in its simulation."""
    source = {"rate": RATE_PER_S, "count": requests, "seed": 3}
    jobs: list[dict[str, object]] = [
        {
            "name": "answering",
            "script": str(JOBS / "answering_job.py"),
            "service": {"p99": "100 ms", "batch": [1, 2, 4, 8], "requests": source},
        },
        {"name": "training", "script": str(JOBS / "steady_job.py"), "args": [str(STEPS_FOR_REQUEST * requests)]},
    ]
    ended, trace = recorded(jobs, "--policy", "fair")
    real = next(job["service"] for job in ended if job["name"] == "answering")
    found = _simulated([replace(job, priority=0) for job in trace.jobs], 1)["answering"]
    return (1e3 * real["p50_s"], _ms(found.p50_s)), (1e3 * real["p99_s"], _ms(found.p99_s))


def main() -> None:
    """Run it from the command line."""
    run_benchmark("service_traces", __doc__, measure, DataOptions, add_data)


if __name__ == "__main__":
    main()
