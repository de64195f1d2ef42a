"""Writes simulations as one HTML file that works offline: its content security policy forbids all requests.

Names and other text from a trace are foreign, and therefore escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from ecoshare.base.joules import MODELLED
from ecoshare.base.plural import counted
from ecoshare.core.placement.colocation_estimates import BESIDE
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.quantities import format_duration, number
from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.charts.simulation_charts import any_letters, completion, fairness, utilisation
from ecoshare.reporting.figures import printable, share
from ecoshare.reporting.tables.result_tables import service_cells
from ecoshare.reporting.tables.simulation_table import policy_figures
from ecoshare.simulation.cluster import BUSY_SHARE, IDLE_SHARE, Cluster, GpuModel
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.power_source import Power
from ecoshare.simulation.result import UNFAIR, SimulationResult
from ecoshare.simulation.traces.job_trace import Trace


def write_simulation_report(
    path: Path,
    results: Sequence[SimulationResult],
    trace: Trace,
    cluster: Cluster,
    costs: Costs,
    walls_s: Sequence[float],
    power: Power,
) -> None:
    """Write the report of one trace under several policies.

    Args:
        walls_s: Wall time (s) of each simulation.
        power: Device that prices the joules.

    Raises:
        UnfitEnvironment: If the file cannot be written.
    """
    content = _page(results, trace, cluster, costs, walls_s, power)
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UnfitEnvironment(f"cannot write {path}: {error.strerror or error}") from error


def _page(
    results: Sequence[SimulationResult],
    trace: Trace,
    cluster: Cluster,
    costs: Costs,
    walls_s: Sequence[float],
    power: Power,
) -> str:
    with charts.settings("simulation"), any_letters():
        drawn = [completion(results), utilisation(results, cluster.size), fairness(results)]
        shown = [
            {"key": each.key, "title": each.title, "caption": each.caption, "svg": inline_svg(each)} for each in drawn
        ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files("ecoshare.reporting") / "simulation.html.j2").read_text(encoding="utf-8"))
    return template.render(
        file=printable(trace.file),
        kind=printable(trace.kind),
        note=printable(trace.note),
        figures=_figures(trace, cluster),
        costs=_costs(costs),
        policies=[printable(result.policy) for result in results],
        columns=policy_figures(results, walls_s),
        services=_services(results),
        charts=shown,
        meanings=_meanings(),
        assumptions=_assumptions(power),
    )


def _figures(trace: Trace, cluster: Cluster) -> list[tuple[str, str, str]]:
    """Name, value and remark of each figure of the trace and the cluster."""
    jobs = trace.all_jobs
    figures = [("jobs", f"{len(jobs):,}", f"of {counted(len({job.job_class for job in jobs}), 'class', 'classes')}")]
    if jobs:
        most = max(job.gpus for job in jobs)
        figures[0] = (*figures[0][:2], f"{figures[0][2]}; up to {counted(most, 'device')} each")
        arrivals_s = [job.arrival_s for job in jobs]
        work_s = sum(job.gpus * job.service_s for job in jobs)
        figures += [
            ("they arrive within", format_duration(max(arrivals_s) - min(arrivals_s)), "from the first to the last"),
            ("work asked for", f"{format_duration(work_s)}", "time of one device, as if each job ran alone"),
        ]
    nodes = f"{counted(cluster.nodes, 'node')} with {cluster.gpus:,} each"
    gpu = cluster.gpu
    limit = f"power limit {gpu.limit_w:g} W" if gpu.recorded is None else f"at most {number(gpu.limit_w)} W"
    return [*figures, ("devices", f"{cluster.size:,} of {gpu.name}", f"{nodes}; {limit}")]


def _services(results: Sequence[SimulationResult]) -> list[tuple[str, str, dict[str, str]]]:
    """Name, policy and cells of each service under each policy."""
    return [
        (printable(each.name), printable(result.policy), service_cells(each.service))
        for result in results
        for each in result.services
        if each.service is not None
    ]


def _costs(costs: Costs) -> list[tuple[str, str]]:
    return [
        ("until a job that is started may have its turn", format_duration(costs.start_s)),
        ("more than that, for one that goes on from where it was stopped", format_duration(costs.restart_s)),
        ("from the word to give way until its devices are free", format_duration(costs.stop_s)),
        ("between two turns", format_duration(costs.handover_s)),
    ]


def _meanings() -> list[str]:
    return [
        "JCT is the time from a job's arrival to its end; queueing is that part of it in which the job had no place.",
        "rho, the finish-time ratio, is a job's JCT over what it would be with an equal share of the cluster to itself "
        "(Themis, NSDI 2020). Below 1 it did better than that; a job is counted as treated unfairly beyond "
        f"{UNFAIR:g} (Shockwave, NSDI 2023).",
        "Utilisation is the part of the makespan that a device was at work, on average.",
        "A unit of work is a device-second of work that was asked for, at the speed that a job has alone.",
        "Latencies of a service run from the arrival of a request to its answer. Figures of JCT and rho leave services "
        "out: a service often ends with the other jobs.",
        "Wall time is what the simulation itself took. The best of each column is in bold.",
    ]


def _assumptions(power: Power) -> list[str]:
    return [
        f"Joules are {MODELLED}: nothing was measured. They compare policies on the same devices at best.",
        f"{printable(power.words)}.",
        *([] if power.gpu.recorded is not None else _constants(power.gpu)),
        "Jobs are as fast as the trace says, unless devices were given speeds of their own. Where jobs of two lanes "
        "are at work on one device and nothing is known of the two, each has "
        f"{share(BESIDE)} of its speed alone: half the median combined speed of all pairs that Gavel measured on a "
        "V100 (OSDI 2020). All together draw at most the power limit.",
        "The costs of starting and switching were measured by the live runtime on a CPU, unless the costs above were "
        "given by hand. They do not include the time in which a job saves and loads its own state, which is unknown.",
    ]


def _constants(gpu: GpuModel) -> list[str]:
    """Sources of the watts of a GPU without recorded power."""
    busy_w, idle_w = gpu.idle_w + gpu.active_w, gpu.idle_w
    return [
        f"A device that is at work draws {share(BUSY_SHARE)} of its power limit, {busy_w:.0f} W of a {gpu.name}'s "
        f"{gpu.limit_w:g} W, where nothing else is known of the job's class. Six workloads on a V100 and an RTX 6000, "
        "at the largest limit and the default batch size, draw 71 % and 75 % of it on average, 15 % to 96 % each "
        "(Zeus, NSDI 2023).",
        f"An idle device draws {share(IDLE_SHARE)} of its limit, {idle_w:.0f} W. This is an assumption: less than the "
        "lightest of those workloads. Limits are those of the vendors' data sheets.",
    ]
