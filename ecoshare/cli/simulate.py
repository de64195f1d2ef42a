"""`ecoshare simulate`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.api import simulate_trace
from ecoshare.api.simulate_trace import SimulateRequest
from ecoshare.base.plural import counted
from ecoshare.cli import completion
from ecoshare.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def simulate(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRACE",
            help="A trace (Philly, Helios, Alibaba PAI, Tiresias, Gavel, Shockwave, ecoshare's CSV) or a run folder.",
        ),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="TRACE",
            help="Trace of another user's run on the same devices, which takes turns with this one; may be repeated.",
        ),
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            help="Make a trace instead: jobs as in salus, philly or sweep; or a search by halving, asha, bohb or "
            "bohb-parallel.",
            autocompletion=completion.traces,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="With --generate: number of jobs.")] = 100,
    load: Annotated[
        float | None, typer.Option(help="With --generate: load, as arriving work over the work that the GPUs can do.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --generate: the same seed gives the same trace.")] = 0,
    data: Annotated[
        Path | None, typer.Option("--data", help="With --generate: folder of the measured catalogues to draw from.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of one node.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Nodes and the GPUs of each, such as 15x4.")] = None,
    spread: Annotated[
        bool,
        typer.Option("--spread", help="Spread the GPUs of a job over any nodes; by default over as few as possible."),
    ] = False,
    gpu_model: Annotated[
        str | None,
        typer.Option(
            help="Model of the GPUs: a100, h100, h200, k80, p100, rtx6000, v100. Default: the recorded power for a "
            "recorded run, h200 for any other trace."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="One or more policies, such as fifo,srtf,tiresias.", autocompletion=completion.policies),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="Objective, in place of a policy: energy, edp, jct or makespan.", autocompletion=completion.objectives
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A parameter of a policy, such as limit_1=3600; may be repeated.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="File with the GPU-seconds of past jobs, one a line, from which gittins learns.")
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Lanes of each GPU: jobs of different lanes run side by side. Default: 1, or 6 with --objective.",
        ),
    ] = None,
    jobs_per_lane: Annotated[
        int,
        typer.Option(min=1, help="Jobs that share a lane by turns. With 1 a job has a GPU of its own and can move."),
    ] = 1,
    host_memory: Annotated[
        str | None,
        typer.Option(help="Host memory of each node for parked jobs, such as '64 GiB'. Default: no job is parked."),
    ] = None,
    no_costs: Annotated[bool, typer.Option("--no-costs", help="Let starts, stops and switches cost nothing.")] = False,
    start_s: Annotated[float | None, typer.Option(min=0.0, help="Seconds to start a job.")] = None,
    stop_s: Annotated[float | None, typer.Option(min=0.0, help="Seconds to stop a preempted job.")] = None,
    restart_s: Annotated[float | None, typer.Option(min=0.0, help="Extra seconds to restart a preempted job.")] = None,
    speeds: Annotated[
        Path | None, typer.Option(help="Measured speeds of the jobs of a Gavel or Shockwave trace (JSON).")
    ] = None,
    speeds_of: Annotated[str, typer.Option(help="GPU to read from the file of --speeds.")] = "v100",
    pairs: Annotated[
        Path | None,
        typer.Option(help="Measured speeds of co-located jobs, in a file like that of --speeds; needs --lanes 2."),
    ] = None,
    schedules: Annotated[Path | None, typer.Option(help="Batch size schedules of a Shockwave trace (JSON).")] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Speeds of single GPUs by job class (CSV): device,class,speed; 1 is typical.")
    ] = None,
    compare: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="SEEDS",
            help="Run all policies on this number of generated traces, on all cores, and compare them. With 1: on the "
            "one trace.",
        ),
    ] = None,
    convert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the trace in ecoshare's own form (CSV), and stop.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a report (HTML).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Run a trace of jobs in virtual time under one or more policies, on any number of GPUs."""
    from ecoshare.policy_names import parse_options
    from ecoshare.simulation.costs import NO_COSTS, Costs

    given = {"start_s": start_s, "stop_s": stop_s, "restart_s": restart_s}
    costs = NO_COSTS if no_costs else Costs()
    request = SimulateRequest(
        trace=trace,
        beside=beside or (),
        generate=generate,
        jobs=jobs,
        load=load,
        seed=seed,
        data=data,
        gpus=gpus,
        nodes=nodes,
        spread=spread,
        gpu_model=gpu_model,
        policies=None if policy is None else [name.strip() for name in policy.split(",") if name.strip()],
        objective=objective,
        options=parse_options(option or ()),
        history=history,
        lanes=lanes,
        jobs_per_lane=jobs_per_lane,
        host_memory=host_memory,
        costs=costs.changed({name: value for name, value in given.items() if value is not None}),
        speeds=speeds,
        speeds_of=speeds_of,
        pairs=pairs,
        schedules=schedules,
        calibration=calibration,
        note=_say,
        progress=_progress,
    )
    if convert is not None:
        if compare is not None:
            raise UsageError("--convert writes one trace: it does not go with --compare")
        found = simulate_trace.convert(request, convert)
        _say(f"{counted(len(found.jobs), 'job')} written to {convert}; {found.note}")
        return
    if compare is not None:
        if report is not None:
            raise UsageError("--report draws one trace: it does not go with --compare")
        _compare(request, compare, as_json)
        return
    result = simulate_trace.simulate(request)
    if as_json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        from ecoshare.reporting.tables.simulation_table import print_simulations

        if result.trace.note:
            _say(result.trace.note)
        print_simulations(result.results, result.walls_s, Console(highlight=False), result.power)
    if report is not None:
        result.write_report(report)
        if not as_json:
            print(f"report: {report}", flush=True)


def _compare(request: SimulateRequest, seeds: int, as_json: bool) -> None:
    from rich.progress import Progress

    from ecoshare.api import compare_policies
    from ecoshare.reporting.tables.comparison_table import print_comparison

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("simulations", total=None)

        def watch(ended: int, of: int) -> None:
            bar.update(task, completed=ended, total=of)

        with _one_interrupt():
            found = compare_policies.compare(request, seeds, watch=watch)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        print_comparison(found, Console(highlight=False))


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Context manager: Ctrl-C interrupts once. A second one would end the programs by which joblib ends processes."""
    before, raised = signal.getsignal(signal.SIGINT), list[BaseException]()

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if callable(before):
                before(number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except RuntimeError:  # joblib was about to start a thread, and cannot join it
        if raised:
            raise raised[0] from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


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
    from ecoshare.reporting.figures import say

    say(Console(stderr=True, highlight=False), f"note: {words}")
