"""`ecoshare tune`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.advisers.advice import OBJECTIVES, TUNING_LIMIT
from ecoshare.cli import completion
from ecoshare.cli.options import DeviceOption, JsonOption, ProfilesOption, RunsOption, WaitOption, goal
from ecoshare.cli.output import note
from ecoshare.common.folders import RUNS
from ecoshare.errors import Interrupted, JobFailed, UsageError, did_you_mean

if TYPE_CHECKING:
    from ecoshare.profiling.tuning_store import KnobRange, MeasurementRecord
    from ecoshare.runtime.tune_run import TuneRun


def tune(
    jobs: Annotated[
        Path | None, typer.Argument(metavar="JOBS.YAML|MODEL.PY", help="Jobs that share the device, or one script.")
    ] = None,
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.")] = None,
    device: DeviceOption = None,
    wait: WaitOption = False,
    lanes: Annotated[
        int | None,
        typer.Option(min=1, help="Lanes of the packing; by default one for each job, up to 3, as in `ecoshare run`."),
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
    if replay is None:
        if columns or where or default:
            raise UsageError("--columns, --where and --default describe a table: name it with --replay TABLE.csv")
        if jobs is None:
            raise UsageError("give a job file or a script, or --replay TABLE.csv", "docs/tuning.md has examples")
        from ecoshare.devices.occupancy import DeviceAdmission, occupied
        from ecoshare.runtime.tune_run import TuneRun

        sought, names = goal(objective, tuning_limit, budget, seed), _knob_names(knobs)
        with occupied(device, DeviceAdmission.of(wait), note) as occupancy:
            asked = TuneRun(jobs, args or [], occupancy, sought, lanes, names, assume_unlocked)
            _tune_live(asked, profiles, runs, plot, as_json, note)
        return
    if jobs is not None:
        raise UsageError(f"{jobs} and --replay {replay}: give one or the other")
    if device or knobs or assume_unlocked or lanes is not None:
        raise UsageError("--device, --lanes, --knobs and --assume-unlocked are for jobs on a device, not for --replay")
    from ecoshare.advisers.table_columns import EXAMPLE
    from ecoshare.advisers.table_file import read
    from ecoshare.reporting.search_picture import check_picture

    if not columns:
        raise UsageError(f"what are the columns of {replay}?", f"such as --columns {EXAMPLE}; `ecoshare tune --help`")
    if plot is not None:
        check_picture(plot)
    table = read(replay, columns, where or [])
    at = table.default(default or [])

    from ecoshare.advisers.search_replay import SearchReplay  # after all checks: torch takes seconds to load
    from ecoshare.profiling.tuning_store import MeasurementRecord
    from ecoshare.reporting.search_picture import draw, ground_of
    from ecoshare.reporting.search_text import TrialLines, knobs_of, print_result, replayed

    try:
        searching = SearchReplay(table, at, objective, tuning_limit, budget, seed, noise)
    except ValueError as error:
        hint = did_you_mean(objective, OBJECTIVES) if objective not in OBJECTIVES else ""
        raise UsageError(str(error), hint) from error
    lines = TrialLines(knobs_of(searching), Console(stderr=as_json, highlight=False), achieved=False)
    lines.heading()
    for measured in searching.measurements():
        lines.line(MeasurementRecord.model_validate(measured.as_dict()))
    verdict = searching.verdict()
    tuned = replayed(searching, verdict)
    if as_json:
        print(json.dumps({**tuned.model_dump(mode="json"), "replay": verdict.as_dict()}, indent=2), flush=True)
    else:
        print_result(tuned, searching.ending, Console(highlight=False), verdict)
    if plot is not None:
        draw(plot, tuned, searching.words(where or []), ground_of(searching, verdict))
        if not as_json:
            print(f"plot: {plot}", flush=True)


def _tune_live(
    asked: TuneRun, profiles: Path | None, runs: Path, plot: Path | None, as_json: bool, say: Callable[[str], None]
) -> None:
    """Tune a packing while it runs, and show the result."""
    from ecoshare.profiling.profile_store import ProfileStore, default_folder
    from ecoshare.reporting.progress import Expendable, StagesProgress
    from ecoshare.reporting.search_picture import check_picture, draw
    from ecoshare.reporting.search_text import TrialLines, print_result
    from ecoshare.runtime import tune_run as tuning
    from ecoshare.runtime.setting_searches import Show

    if plot is not None:
        check_picture(plot)
    store = ProfileStore(profiles or default_folder())
    store.make()
    errors = Console(stderr=True, highlight=False)

    class Lines(Show):
        """Prints one line for each measurement."""

        lines: TrialLines | None = None

        def begins(self, knobs: Sequence[KnobRange]) -> None:
            self.lines = TrialLines(knobs, errors if as_json else Console(highlight=False), achieved=True)

        def trial(self, record: MeasurementRecord) -> None:
            if self.lines is None:
                return
            try:
                if record.number == 1:
                    self.lines.heading()
                self.lines.line(record)
                sys.stdout.flush()
            except (OSError, SystemExit):  # rich raises SystemExit if its reader is gone; the search goes on
                self.lines = None

    tuned, ending, result = tuning.tune(asked, store, runs, Expendable(StagesProgress(errors)), Lines(), say)
    for line in result.notes:
        say(line)
    if as_json:
        print(
            json.dumps(
                {**tuned.model_dump(mode="json"), "ending": ending or None, "run": result.data.summary["run"]}, indent=2
            ),
            flush=True,
        )
    else:
        print_result(tuned, ending or "the search was cut off", Console(highlight=False))
    if plot is not None:
        draw(plot, tuned, asked.jobs.name, None)
    if not as_json and ending:
        if tuned.best is None or tuned.best == tuned.default:
            print("kept for this packing: it runs best as the device was found")
        else:
            print(
                f"kept for this packing: the next `ecoshare run --objective {tuned.objective}` of it uses the setting "
                f"({store.folder}/tuned)"
            )
    if not as_json:
        if plot is not None:
            print(f"plot: {plot}")
        print(f"run folder: {result.data.summary['run']}", flush=True)
    if not ending:
        summary = result.data.summary
        for job in summary["jobs"]:
            if job["state"] == "failed":
                raise JobFailed(
                    f"{job['name']} failed before the search was over, and nothing is kept: {job['error']}",
                    f"what it said is in {summary['run']}/jobs/{job['name']}/stderr.log",
                )
        ended = [job["name"] for job in summary["jobs"] if job["state"] == "completed"]
        if ended:
            raise JobFailed(
                f"{', '.join(ended)} ended before the search was over: nothing is kept",
                "let it run for longer, or give fewer trials with --budget",
            )
        raise Interrupted("stopped before the search was over: nothing is kept")


def _knob_names(words: str | None) -> tuple[str, ...] | None:
    """Names in a list such as `gpu_clock,power_limit`; None for all knobs.

    Raises:
        UsageError: The list contains no name.
    """
    if words is None:
        return None
    names = tuple(name.strip() for name in words.split(",") if name.strip())
    if not names:
        raise UsageError(
            "--knobs names no knob", "such as --knobs gpu_clock,power_limit; `ecoshare devices` shows them"
        )
    return names
