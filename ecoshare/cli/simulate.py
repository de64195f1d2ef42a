"""`ecoshare simulate`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.cli import completion
from ecoshare.common.plural import counted
from ecoshare.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


DEFAULT_POLICIES = ("fifo", "srtf", "tiresias")


def simulate(
    trace: Annotated[
        Path | None,
        typer.Argument(metavar="TRACE", help="A trace (Tiresias, Philly, Gavel, Shockwave, ecoshare) or a run folder."),
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            help="Make a trace instead: jobs as in salus, philly or sweep; or a search by halving, asha, bohb or "
            "bohb-parallel.",
            autocompletion=completion.traces,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="With --generate: how many.")] = 100,
    load: Annotated[
        float | None, typer.Option(help="With --generate: work that comes over what the GPUs can do.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --generate: the same seed gives the same trace.")] = 0,
    data: Annotated[
        Path | None, typer.Option("--data", help="With --generate: folder of the measured catalogues to draw from.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of one node.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Nodes and the GPUs of each, such as 15x4.")] = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="The GPUs of a job may be of any nodes; else as few as can be.")
    ] = False,
    gpu_model: Annotated[
        str | None,
        typer.Option(
            help="Of the GPUs: a100, h100, h200, k80, p100, rtx6000, v100. By default a recorded run has the power "
            "that it recorded, and any other trace is run on h200."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="One or more, such as fifo,srtf,tiresias.", autocompletion=completion.policies),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="In place of a policy: energy, edp, jct or makespan.", autocompletion=completion.objectives),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A policy's own parameter, such as limit_1=3600; may be repeated.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="GPU-seconds of past jobs, one a line: what gittins learns from.")
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Lanes of each GPU: jobs of different lanes run side by side. By default 1, and 6 with --objective.",
        ),
    ] = None,
    jobs_per_lane: Annotated[
        int, typer.Option(min=1, help="Jobs that share a lane by turns. With 1 a job has its GPU to itself, and moves.")
    ] = 1,
    no_costs: Annotated[
        bool, typer.Option("--no-costs", help="Starting, stopping and switching cost nothing.")
    ] = False,
    start_s: Annotated[float | None, typer.Option(min=0.0, help="Seconds to start a job.")] = None,
    stop_s: Annotated[float | None, typer.Option(min=0.0, help="Seconds to stop one that gives way.")] = None,
    restart_s: Annotated[float | None, typer.Option(min=0.0, help="Seconds more to start it again.")] = None,
    speeds: Annotated[
        Path | None, typer.Option(help="Measured speeds of the jobs of a Gavel or Shockwave trace (JSON).")
    ] = None,
    speeds_of: Annotated[str, typer.Option(help="The GPU in that file whose speeds are meant.")] = "v100",
    pairs: Annotated[
        Path | None, typer.Option(help="Measured speeds of jobs beside each other, in such a file; with --lanes 2.")
    ] = None,
    schedules: Annotated[
        Path | None, typer.Option(help="How the batch sizes of a Shockwave trace change (JSON).")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Speeds of single GPUs by class of job (CSV): device,class,speed; 1 is typical.")
    ] = None,
    convert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the trace in ecoshare's own form (CSV), and stop.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a report (HTML).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Run a trace of jobs in virtual time under one or more policies, on any number of GPUs."""
    from ecoshare.core.events import Config
    from ecoshare.policy_names import LANES_TO_PACK, packs, policy_options
    from ecoshare.simulation.cluster import cluster as cluster_of
    from ecoshare.simulation.costs import NO_COSTS, Costs
    from ecoshare.simulation.pairs import read as beside_each_other
    from ecoshare.simulation.power_source import choose
    from ecoshare.simulation.simulator import Simulator
    from ecoshare.simulation.traces.any_trace import read
    from ecoshare.simulation.traces.history import read as past_jobs
    from ecoshare.simulation.world import World

    policies = _policies(policy, objective)
    options = policy_options(option or [], policies)
    past_gpu_s = () if history is None else past_jobs(history)
    if (trace is None) == (generate is None):
        raise UsageError("give a trace, or --generate salus, philly, halving, ...", "`ecoshare simulate --help`")
    found = None if trace is None else read(trace, speeds=speeds, schedules=schedules, gpu_model=speeds_of)
    power = choose(gpu_model, found)
    cluster = cluster_of(gpus, nodes, power.gpu, spread)
    if calibration is not None:
        from ecoshare.simulation.calibration import read as measured

        cluster = replace(cluster, speeds=measured(calibration, cluster))
    if found is None:
        assert generate is not None
        from ecoshare.simulation.traces.generate import generate as made

        found = made(generate, jobs, seed, data, gpus=cluster.size, load=load)
    unused = {each for of in cluster.speeds.values() for each in of if each} - {job.job_class for job in found.all_jobs}
    if unused:
        _say(f"no job of the trace is of class {', '.join(sorted(unused))}, which --calibration names")
    if convert is not None and found.sweeps:
        raise UsageError("--convert: a file of jobs cannot say when trials pause or end early", "simulate it as it is")
    if convert is not None:
        from ecoshare.simulation.traces.own import write

        write(found, convert)
        _say(f"{counted(len(found.jobs), 'job')} written to {convert}; {found.note}")
        return
    if lanes is None:
        lanes = LANES_TO_PACK if objective is not None else 1
    if lanes == 1 and (packing := [each for each in policies if packs(each)]):
        _say(f"{', '.join(packing)}: with one lane of each GPU nobody is beside anybody; --lanes 6 lets them choose")
    if pairs is not None and lanes == 1:
        raise UsageError("--pairs: jobs of one lane are never beside each other", "--lanes 2 opens two on each GPU")
    beside = None if pairs is None else beside_each_other(pairs, speeds_of)
    costs = NO_COSTS if no_costs else Costs()
    given = {"start_s": start_s, "stop_s": stop_s, "restart_s": restart_s}
    costs = costs.changed({name: value for name, value in given.items() if value is not None})
    alone = lanes == jobs_per_lane == 1
    simulators = [
        Simulator(
            found,
            cluster,
            Config(each, lanes, jobs_per_lane, preempt=alone, options=options, past_gpu_s=past_gpu_s),
            World(cluster.gpu, speeds=cluster.speeds, active_w=power.active_w, pairs=beside),
            costs,
        )
        for each in policies
    ]
    results, walls_s = [], []
    for name, simulator in zip(policies, simulators, strict=True):
        with _progress(name, len(found.all_jobs)) as tell:
            began_s = time.perf_counter()
            results.append(simulator.run(progress=tell))
            walls_s.append(time.perf_counter() - began_s)
    if as_json:
        rows = [{**each.as_dict(), "wall_s": wall_s} for each, wall_s in zip(results, walls_s, strict=True)]
        described = {"file": found.file, "kind": found.kind, "jobs": len(found.all_jobs), "note": found.note}
        print(
            json.dumps(
                {
                    "schema_version": 1,
                    "trace": described,
                    "cluster": {"nodes": cluster.nodes, "gpus": cluster.size, "gpu_model": cluster.gpu.name},
                    "power": power.as_dict(),
                    "costs": costs.as_dict(),
                    "energy_source": "modelled",
                    "policies": rows,
                },
                indent=2,
            )
        )
    else:
        from ecoshare.reporting.simulation_table import print_simulations

        if found.note:
            _say(found.note)
        print_simulations(results, walls_s, Console(highlight=False), power)
    if report is not None:
        from ecoshare.reporting.simulation_html import write_simulation_report

        write_simulation_report(report, results, found, cluster, costs, walls_s, power)
        if not as_json:
            print(f"report: {report}", flush=True)


def _policies(policy: str | None, objective: str | None) -> tuple[str, ...]:
    from ecoshare.policy_names import check_policy

    if policy is not None and objective is not None:
        raise UsageError("--policy and --objective: give one or the other")
    if objective is not None:
        from ecoshare.policy_names import check_objective

        check_objective(objective)
        return (objective,)
    if policy is None:
        return DEFAULT_POLICIES
    names = tuple(dict.fromkeys(name.strip() for name in policy.split(",") if name.strip()))
    if not names:
        raise UsageError("--policy is empty")
    for name in names:
        check_policy(name)
    return names


@contextmanager
def _progress(policy: str, jobs: int) -> Iterator[Callable[[int], None] | None]:
    """Context manager: a function that moves a progress bar; None without a terminal, or for a short simulation."""
    console = Console(stderr=True)
    if not console.is_terminal or jobs < 5000:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(policy, total=jobs)
        yield lambda done: bar.update(task, completed=done) if done % 100 == 0 else None


def _say(words: str) -> None:
    from ecoshare.reporting.prose import say

    say(Console(stderr=True, highlight=False), f"note: {words}")
