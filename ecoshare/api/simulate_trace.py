"""`simulate`: a trace of jobs in virtual time, under one or more policies, on any number of GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import check_least, path_or_none, silent
from ecoshare.errors import UsageError
from ecoshare.option_fields import request_class, with_fields
from ecoshare.run_options import size_bytes

if TYPE_CHECKING:
    from ecoshare.base.disk import AnyPath
    from ecoshare.simulation.cluster import Cluster
    from ecoshare.simulation.costs import Costs
    from ecoshare.simulation.power_source import Power
    from ecoshare.simulation.result import SimulationResult
    from ecoshare.simulation.simulator import Simulator
    from ecoshare.simulation.traces.job_trace import Trace

DEFAULT_POLICIES = ("fifo", "srtf", "tiresias")

Watch = Callable[[int], None] | None
"""Function that gets the number of ended jobs; None to watch nothing."""


def watch_nothing(_policy: str, _jobs: int) -> AbstractContextManager[Watch]:
    """Context without a watch."""
    return nullcontext()


@request_class
class SimulateRequest:
    """Request for a simulation. The fields are the options of `ecoshare simulate`.

    Attributes:
        trace: Path of a trace (Philly, Helios, Alibaba PAI, Tiresias, Gavel, Shockwave, ecoshare's CSV) or of a run
            folder; None to generate one.
        beside: Paths of traces of other runs on the same devices, each of another user. They take turns with this one.
        generate: Kind of the trace to generate: `salus`, `philly`, `sweep`, or a search by `halving`, `asha`, `bohb`
            or `bohb-parallel`; None for a trace from a file.
        jobs: Number of jobs of a generated trace.
        load: Work that arrives in a generated trace / work that the GPUs can do; None for that of its kind.
        seed: Seed of a generated trace.
        data: Folder of the measured catalogues that a generated trace is drawn from; None for published figures.
        gpus: Number of GPUs of one node; None for 1, or for `nodes`.
        nodes: Nodes and the GPUs of each, such as `15x4`; None for one node.
        spread: Whether the GPUs of a job may be of any nodes.
        gpu_model: Model of the GPUs; None for the recorded device of a run, else h200.
        policies: Names of the policies; None for `DEFAULT_POLICIES`, or for the policy of the objective.
        objective: `energy`, `edp`, `jct` or `makespan`, in place of policies; None for none.
        options: Options of the policies, by name.
        history: File with the GPU-seconds of past jobs, one a line, which `gittins` learns from.
        lanes: Lanes of each GPU, which run side by side; None for 1, and for 6 with an objective.
        jobs_per_lane: Jobs that share a lane by turns.
        host_memory: Host memory of each node for parked jobs, in bytes or as text such as `16 GiB`; None to park none.
        costs: Costs of starts, stops and hand-overs (s); None for those of the live runtime.
        speeds: File with the measured speeds of the jobs of a Gavel or Shockwave trace (JSON).
        speeds_of: GPU in that file from which speeds are read.
        pairs: File with measured speeds of jobs beside each other; needs two lanes.
        schedules: File with the batch sizes over time of a Shockwave trace (JSON).
        calibration: File with the speeds of single GPUs by class of job (CSV).
        note: Shows a note to the user.
        progress: Makes the context in which one policy is simulated, from its name and the number of jobs. The context
            gives the function that gets the number of ended jobs, or None.
    """

    trace: AnyPath | None = None
    beside: Sequence[AnyPath] = ()
    generate: str | None = None
    jobs: int = 100
    load: float | None = None
    seed: int = 0
    data: AnyPath | None = None
    gpus: int | None = None
    nodes: str | None = None
    spread: bool = False
    gpu_model: str | None = None
    policies: Sequence[str] | None = None
    objective: str | None = None
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    history: AnyPath | None = None
    lanes: int | None = None
    jobs_per_lane: int = 1
    host_memory: str | int | None = None
    costs: Costs | None = None
    speeds: AnyPath | None = None
    speeds_of: str = "v100"
    pairs: AnyPath | None = None
    schedules: AnyPath | None = None
    calibration: AnyPath | None = None
    note: Callable[[str], None] = silent
    progress: Callable[[str, int], AbstractContextManager[Watch]] = watch_nothing


@dataclass(frozen=True, slots=True)
class SimulateResult:
    """Results of one trace, one for each policy.

    Attributes:
        results: Results in the order of the policies. Those of runs beside this one follow that of their policy, and
            have the path of their trace in their name, as in `fifo beside.csv`.
        walls_s: Wall time (s) that each simulation took.
        trace: The trace.
        cluster: Nodes and GPUs.
        power: Device that prices the joules.
        costs: Costs of starts, stops and hand-overs (s).
    """

    results: tuple[SimulationResult, ...] = field(repr=False)
    walls_s: tuple[float, ...]
    trace: Trace = field(repr=False)
    cluster: Cluster = field(repr=False)
    power: Power = field(repr=False)
    costs: Costs = field(repr=False)

    def __getitem__(self, policy: str) -> SimulationResult:
        """Result of one policy.

        Raises:
            KeyError: The policy was not simulated.
        """
        return {result.policy: result for result in self.results}[policy]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `ecoshare simulate --json` prints it."""
        trace, cluster = self.trace, self.cluster
        return {
            "schema_version": 1,
            "trace": {"file": trace.file, "kind": trace.kind, "jobs": len(trace.all_jobs), "note": trace.note},
            "cluster": {"nodes": cluster.nodes, "gpus": cluster.size, "gpu_model": cluster.gpu.name},
            "power": self.power.as_dict(),
            "costs": self.costs.as_dict(),
            "energy_source": "modelled",
            "policies": [
                {**result.as_dict(), "wall_s": wall_s}
                for result, wall_s in zip(self.results, self.walls_s, strict=True)
            ],
        }

    def write_report(self, path: AnyPath) -> None:
        """Write the report as one HTML file.

        Raises:
            UnfitEnvironment: The file cannot be written.
        """
        from ecoshare.reporting.simulation_html import write_simulation_report

        write_simulation_report(
            Path(path), self.results, self.trace, self.cluster, self.costs, self.walls_s, self.power
        )


def simulate(trace: AnyPath | SimulateRequest | None = None, /, **fields: Any) -> SimulateResult:
    """Run a trace of jobs in virtual time under each policy.

    Args:
        trace: A request, or its `trace`.
        fields: Other fields of the `SimulateRequest`.

    Raises:
        UsageError: The fields contradict each other, name what does not exist, or are out of range.
        InvalidJobFile: A file has mistakes; the error lists them, with line and column.
    """
    request = _request(trace, fields)
    scenario = _scenario(request)
    results: list[SimulationResult] = []
    walls_s: list[float] = []
    for (simulator, *others), name in zip(_simulators(request, scenario), scenario.policies, strict=True):
        with request.progress(name, len(scenario.trace.all_jobs)) as watch:
            began_s = time.perf_counter()
            if others:
                results += _beside(scenario, simulator, others)
            else:
                results.append(simulator.run(progress=watch))
            walls_s += [time.perf_counter() - began_s] * (1 + len(others))
    return SimulateResult(
        tuple(results), tuple(walls_s), scenario.trace, scenario.cluster, scenario.power, _costs(request)
    )


def _beside(scenario: Scenario, simulator: Simulator, others: Sequence[Simulator]) -> Iterator[SimulationResult]:
    from ecoshare.simulation.runs_together import RunsTogether

    own, *found = RunsTogether([simulator, *others], scenario.cluster).run()
    yield own
    for trace, result in zip(scenario.beside, found, strict=True):
        yield replace(result, policy=f"{result.policy} {trace.file}")


def convert(trace: AnyPath | SimulateRequest | None, path: AnyPath, /, **fields: Any) -> Trace:
    """Write a trace in ecoshare's own form (CSV), and return it.

    Args:
        trace: A request, or its `trace`.
        path: Path of the file to write.
        fields: Other fields of the `SimulateRequest`.

    Raises:
        UsageError: The trace has trials that pause or end early, or see `simulate`.
        InvalidJobFile: See `simulate`.
    """
    from ecoshare.simulation.traces.own import write

    found = _scenario(_request(trace, fields)).trace
    if found.sweeps:
        raise UsageError("--convert: a file of jobs cannot say when trials pause or end early", "simulate it as it is")
    write(found, Path(path))
    return found


def checked(request: SimulateRequest) -> Scenario:
    """Parts of a request that could be simulated as it is.

    Raises:
        UsageError: See `simulate`.
        InvalidJobFile: See `simulate`.
    """
    found = _scenario(_request(request, {}))
    _simulators(request, found)
    return found


@dataclass(frozen=True, slots=True)
class Scenario:
    """Parts of a request that need no lanes and no costs, read and checked.

    Attributes:
        policies: Names of the policies.
        options: Options of the policies, as (name, value) pairs.
        past_gpu_s: GPU-seconds of past jobs.
        trace: The trace.
        beside: Traces of other runs on the same devices.
        power: Device that prices the joules.
        cluster: Nodes and GPUs.
    """

    policies: tuple[str, ...]
    options: tuple[tuple[str, float], ...]
    past_gpu_s: tuple[float, ...]
    trace: Trace
    beside: tuple[Trace, ...]
    power: Power
    cluster: Cluster


def _request(trace: AnyPath | SimulateRequest | None, fields: dict[str, Any]) -> SimulateRequest:
    request = with_fields(trace if isinstance(trace, SimulateRequest) else SimulateRequest(trace=trace), fields)
    for name, least in (("jobs", 1), ("seed", 0), ("lanes", 1), ("jobs_per_lane", 1)):
        check_least(name, getattr(request, name), least)
    for name, value in (request.costs.as_dict() if request.costs is not None else {}).items():
        check_least(name, value, 0.0)
    return request


def _scenario(request: SimulateRequest) -> Scenario:
    from ecoshare.policy_names import policy_options
    from ecoshare.simulation import cluster as clusters
    from ecoshare.simulation.cluster import read as read_calibration
    from ecoshare.simulation.power_source import choose
    from ecoshare.simulation.traces.any_trace import read
    from ecoshare.simulation.traces.generate import generate
    from ecoshare.simulation.traces.history import read as read_history

    policies = _policies(request.policies, request.objective)
    options = policy_options(request.options, policies)
    past_gpu_s = () if request.history is None else read_history(Path(request.history))
    if (request.trace is None) == (request.generate is None):
        raise UsageError("give a trace, or --generate salus, philly, halving, ...", "`ecoshare simulate --help`")
    paths = [request.trace] if request.trace is not None else []
    traces = [
        read(
            Path(path),
            speeds=path_or_none(request.speeds),
            schedules=path_or_none(request.schedules),
            gpu_model=request.speeds_of,
        )
        for path in (*paths, *request.beside)
    ]
    found = traces.pop(0) if paths else None
    power = choose(request.gpu_model, found)
    cluster = clusters.cluster(request.gpus, request.nodes, power.gpu, request.spread)
    if traces and cluster.nodes > 1:
        raise UsageError("--beside: runs take turns on one machine", "--gpus N gives it N devices")
    if request.calibration is not None:
        cluster = replace(cluster, speeds=read_calibration(Path(request.calibration), cluster))
    if found is None:
        assert request.generate is not None
        data = path_or_none(request.data)
        found = generate(request.generate, request.jobs, request.seed, data, gpus=cluster.size, load=request.load)
    unused = {each for of in cluster.speeds.values() for each in of if each} - {job.job_class for job in found.all_jobs}
    if unused:
        request.note(f"no job of the trace is of class {', '.join(sorted(unused))}, which --calibration names")
    return Scenario(policies, options, past_gpu_s, found, tuple(traces), power, cluster)


def _simulators(request: SimulateRequest, scenario: Scenario) -> list[list[Simulator]]:
    """For each policy, the simulators of the trace and of those beside it."""
    from ecoshare.core.events import Config
    from ecoshare.policy_names import LANES_TO_PACK, packs
    from ecoshare.simulation.simulated_services import check_places
    from ecoshare.simulation.simulator import Simulator
    from ecoshare.simulation.world import World
    from ecoshare.simulation.world import read as read_pairs

    lanes, places = request.lanes, request.jobs_per_lane
    if lanes is None:
        lanes = LANES_TO_PACK if request.objective is not None else 1
    if lanes == 1 and (packing := [each for each in scenario.policies if packs(each)]):
        request.note(f"{', '.join(packing)}: with one lane of each GPU no job runs beside another; use --lanes 6")
    if request.pairs is not None and lanes == 1:
        raise UsageError("--pairs: jobs of one lane are never beside each other", "--lanes 2 opens two on each GPU")
    host_bytes = size_bytes("--host-memory", request.host_memory) or 0
    if host_bytes and lanes == places == 1:
        raise UsageError(
            "--host-memory: with a GPU for each job, a job that gives way is stopped", "share lanes: --jobs-per-lane 4"
        )
    beside = None if request.pairs is None else read_pairs(Path(request.pairs), request.speeds_of)
    cluster, alone = scenario.cluster, lanes == places == 1
    configs = [
        Config(
            policy,
            lanes,
            places,
            preempt=alone,
            options=scenario.options,
            past_gpu_s=scenario.past_gpu_s,
            host_bytes=host_bytes,
            shares_memory=bool(scenario.beside),
            counts_jobs=True,
        )
        for policy in scenario.policies
    ]
    traces = (scenario.trace, *scenario.beside)
    for config in configs:
        for trace in traces:
            check_places(trace, cluster, config)
    world = World(cluster.gpu, speeds=cluster.speeds, active_w=scenario.power.active_w, pairs=beside)
    return [[Simulator(trace, cluster, config, world, _costs(request)) for trace in traces] for config in configs]


def _costs(request: SimulateRequest) -> Costs:
    from ecoshare.simulation.costs import Costs

    return Costs() if request.costs is None else request.costs


def _policies(policies: Sequence[str] | None, objective: str | None) -> tuple[str, ...]:
    from ecoshare.policy_names import check_objective, check_policy

    if policies is not None and objective is not None:
        raise UsageError("--policy and --objective: give one or the other")
    if objective is not None:
        check_objective(objective)
        return (objective,)
    if policies is None:
        return DEFAULT_POLICIES
    names = tuple(dict.fromkeys([policies] if isinstance(policies, str) else policies))
    if not names:
        raise UsageError("--policy is empty")
    for name in names:
        check_policy(name)
    return names
