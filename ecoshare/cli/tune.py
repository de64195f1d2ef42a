"""`ecoshare tune`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.api import replay_search, tune_packing
from ecoshare.api.replay_search import ReplayRequest
from ecoshare.api.tune_packing import TuneRequest
from ecoshare.base.disk import RUNS
from ecoshare.base.measurement import TUNING_LIMIT
from ecoshare.cli import completion
from ecoshare.cli.options import DeviceOption, JsonOption, ProfilesOption, RunsOption, WaitOption, waits
from ecoshare.cli.output import note
from ecoshare.errors import UsageError

if TYPE_CHECKING:
    from ecoshare.api.tune_packing import TuneResult
    from ecoshare.knowledge.advisers.search_replay import SearchReplay
    from ecoshare.reporting.search_text import TrialLines


def tune(
    jobs: Annotated[
        Path | None, typer.Argument(metavar="JOBS.YAML|MODEL.PY", help="Jobs that share the device, or one script.")
    ] = None,
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.")] = None,
    device: DeviceOption = None,
    wait: WaitOption = None,
    lanes: Annotated[
        int | None,
        typer.Option(min=1, help="Lanes of the packing; by default one for each job, up to 6, as in `ecoshare run`."),
    ] = None,
    knobs: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Knobs to set, such as gpu_clock,power_limit; by default all.")
    ] = None,
    assume_unlocked: Annotated[
        bool, typer.Option("--assume-unlocked", help="Lock clocks even if another program may have locked them.")
    ] = False,
    profiles: ProfilesOption = None,
    runs: RunsOption = RUNS,
    replay: Annotated[
        Path | None, typer.Option(metavar="TABLE.CSV", help="Search in a measured table instead of on a device.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=COLUMN[:UNIT],...",
            help="Columns of the table. Knobs: core_clock (MHz, GHz), memory_clock, power_limit (W, mW), "
            "work_size (such as a batch size; times are then those of a fixed amount of work), other (any number of "
            "them). Measured: power (W, mW), time (s, ms, us; one for each job). "
            "Such as 'power_limit=limit:W, work_size=batch, time=epoch_s, power=watts'.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE,...", help="Rows of the table to use, such as network=resnet50."),
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB=NUMBER,...",
            help="The default setting by the names of the columns, such as 'limit=300, batch=256'; clocks and "
            "power limits that are not named are at their largest.",
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="energy, edp, jct or makespan.", autocompletion=completion.objectives)
    ] = "energy",
    tuning_limit: Annotated[
        float, typer.Option(help="Limit on the time of an iteration, relative to the default setting.")
    ] = TUNING_LIMIT,
    budget: Annotated[int, typer.Option(min=1, help="Largest number of measurements.")] = 20,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the search and the noise; equal seeds give equal searches.")
    ] = 0,
    noise: Annotated[
        float,
        typer.Option(min=0.0, max=0.5, help="Relative noise added to each number of the table: 0.02 is 2 percent."),
    ] = 0.02,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw energy against slowdown: .svg, .html or .png.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the clocks and the power limit that save most within a limit on the slowdown."""
    if replay is not None:
        if jobs is not None:
            raise UsageError(f"{jobs} and --replay {replay}: give one or the other")
        if device or knobs or assume_unlocked or lanes is not None:
            raise UsageError(
                "--device, --lanes, --knobs and --assume-unlocked are for jobs on a device, not for --replay"
            )
        if not columns:
            from ecoshare.knowledge.advisers.table_columns import EXAMPLE

            raise UsageError(
                f"what are the columns of {replay}?", f"such as --columns {EXAMPLE}; `ecoshare tune --help`"
            )
        _search_table(
            ReplayRequest(
                table=replay,
                columns=columns,
                where=where or (),
                default=default or (),
                objective=objective,
                tuning_limit=tuning_limit,
                budget=budget,
                seed=seed,
                noise=noise,
            ),
            plot,
            as_json,
        )
        return
    if columns or where or default:
        raise UsageError("--columns, --where and --default describe a table: name it with --replay TABLE.csv")
    if jobs is None:
        raise UsageError("give a job file or a script, or --replay TABLE.csv", "docs/tuning.md has examples")
    _search_device(
        TuneRequest(
            jobs=jobs,
            args=args or (),
            objective=objective,
            tuning_limit=tuning_limit,
            budget=budget,
            seed=seed,
            lanes=lanes,
            knobs=None if knobs is None else [name.strip() for name in knobs.split(",") if name.strip()],
            assume_unlocked=assume_unlocked,
            device=device,
            wait=waits(wait),
            profiles=profiles,
            runs=runs,
        ),
        plot,
        as_json,
    )


def _search_table(request: ReplayRequest, plot: Path | None, as_json: bool) -> None:
    """Search in a table, and show the result."""
    from ecoshare.reporting.charts.search_picture import check_picture
    from ecoshare.reporting.search_text import TrialLines, knobs_of, print_result

    if plot is not None:
        check_picture(plot)
    lines: list[TrialLines] = []

    def begins(search: SearchReplay) -> None:
        lines.append(TrialLines(knobs_of(search), Console(stderr=as_json, highlight=False), achieved=False))
        lines[0].heading()

    result = replay_search.replay(replace(request, begins=begins, measured=lambda record: lines[0].line(record)))
    if as_json:
        print(json.dumps(result.as_dict(), indent=2), flush=True)
    else:
        print_result(result.tuning, result.ending, Console(highlight=False), result.verdict)
    if plot is not None:
        result.draw(plot)
        if not as_json:
            print(f"plot: {plot}", flush=True)


def _search_device(request: TuneRequest, plot: Path | None, as_json: bool) -> None:
    """Search on a device, and show the result."""
    from ecoshare.reporting.charts.search_picture import check_picture
    from ecoshare.reporting.progress import Expendable, StagesProgress
    from ecoshare.reporting.search_text import SearchLines, print_result
    from ecoshare.runtime.signals import CommandSignals

    if plot is not None:
        check_picture(plot)
    errors = Console(stderr=True, highlight=False)
    result = tune_packing.tune(
        request,
        note=note,
        progress=lambda: Expendable(StagesProgress(errors)),
        show=SearchLines(errors if as_json else Console(highlight=False)),
        signals=CommandSignals(),
    )
    for line in result.run.notes:
        note(line)
    if as_json:
        print(json.dumps(result.as_dict(), indent=2), flush=True)
    else:
        print_result(result.tuning, result.ending or "the search was cut off", Console(highlight=False))
    if plot is not None:
        result.draw(plot)
    if not as_json:
        _print_places(result, plot)
    result.check()


def _print_places(result: TuneResult, plot: Path | None) -> None:
    tuned = result.tuning
    if result.ending:
        if tuned.best is None or tuned.best == tuned.default:
            print("kept for this packing: it runs best as the device was found")
        else:
            print(
                f"kept for this packing: the next `ecoshare run --objective {tuned.objective}` of it uses the setting "
                f"({result.kept_in})"
            )
    if plot is not None:
        print(f"plot: {plot}")
    print(f"run folder: {result.run.summary.run}", flush=True)
