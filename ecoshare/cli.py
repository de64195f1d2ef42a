"""The command line.

Results go to stdout, progress and words to stderr. Exit codes are those of `ecoshare.errors`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import signal
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

import ecoshare
from ecoshare import simulate_cli
from ecoshare.advise.advice import TUNING_LIMIT, Goal
from ecoshare.counted import counted
from ecoshare.errors import (
    EcoshareError,
    Interrupted,
    InvalidJobFile,
    JobFailed,
    LimitNotMet,
    UnfitEnvironment,
    UsageError,
)
from ecoshare.lane.leaving import wind_up

app = typer.Typer(
    name="ecoshare",
    help="Share one device between several unmodified PyTorch jobs, and account for the energy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JobFileArgument = Annotated[Path | None, typer.Argument(metavar="JOBS.YAML", help="The job file; see `ecoshare init`.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; the first GPU, else the processors.")]
ProfilesOption = Annotated[
    Path | None, typer.Option("--profiles", help="Folder that holds profiles; else that of the user's data.")
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder that holds run folders.")]


class Control(Enum):
    """Whether clocks and power may be set."""

    AUTO = "auto"
    KNOWN = "known"
    OFF = "off"


def main() -> NoReturn:
    """Run the command line, and end the process; what `ecoshare` calls."""
    status: object = None
    try:
        _main()
    except SystemExit as end:
        status = end.code
    _leave(status if isinstance(status, int) else int(status is not None))


def _leave(code: int) -> NoReturn:
    """End the process. All is written by now, and to take every module apart would take 0.1 s, with torch 0.3."""
    if sys.getprofile() is not None or sys.gettrace() is not None:
        sys.exit(code)  # who watches this program writes down at its very end what was seen
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wind_up()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or never there
            stream.flush()
    os._exit(code)


def _main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a locale that lacks a letter is no reason to fail
    signal.signal(signal.SIGINT, _interrupted)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else `nohup` means it
            signal.signal(number, _interrupted)
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where it can be told that there is no room
    except EcoshareError as error:
        from ecoshare.reporting.sentences import say

        console = Console(stderr=True, highlight=False)
        # Mistakes of a job file begin with their place, so that editors can jump to it.
        prefix = "" if isinstance(error, InvalidJobFile) else "error: "
        for line in str(error).splitlines():
            say(console, f"{prefix}{line}", "red" if console.is_terminal else "")
        if error.hint:
            say(console, f"hint: {error.hint}")
        sys.exit(error.exit_code)
    except OSError as error:
        with contextlib.suppress(OSError):
            place = f"{error.filename}: " if error.filename else ""
            print(f"error: {place}{error.strerror or error}", file=sys.stderr, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what cannot be written now cannot be written at exit either
        sys.exit(UnfitEnvironment.exit_code)


def _interrupted(_number: int, _frame: object) -> None:
    """Ctrl-C, or an end that somebody asks for, while no run is going on; a run has handlers of its own."""
    raise Interrupted("interrupted")


@app.callback(invoke_without_command=True)
def _common(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(ecoshare.__version__)
        raise typer.Exit


@app.command()
def run(
    jobs: JobFileArgument = None,
    objective: Annotated[str, typer.Option(help="energy, jct, makespan or edp.")] = "energy",
    policy: Annotated[
        str | None,
        typer.Option(
            help="fair, fifo, pack, priority, srtf, tiresias, ...; the objective chooses where none is named."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="A parameter of the policy that is named, such as limit_1=3600; may be repeated."),
    ] = None,
    device: DeviceOption = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            help="Lanes: jobs of one lane take turns, lanes run side by side. By default 6 where the policy chooses "
            "who runs beside whom, else 1."
        ),
    ] = None,
    jobs_per_lane: Annotated[int | None, typer.Option(help="Most jobs that hold memory in one lane at once.")] = None,
    memory: Annotated[str | None, typer.Option(help="Most memory for all jobs, such as '8 GiB'.")] = None,
    control: Annotated[
        Control,
        typer.Option(
            help="Clocks and power: auto searches the best setting of each packing and uses it, known only uses what "
            "was found before, off sets nothing."
        ),
    ] = Control.AUTO,
    tuning_limit: Annotated[
        float,
        typer.Option(help="Most that a setting may make an iteration take, over the same at the default setting."),
    ] = TUNING_LIMIT,
    runs: RunsOption = Path("runs"),
    profiles: ProfilesOption = None,
    no_profiles: Annotated[
        bool, typer.Option("--no-profiles", help="Neither use profiles of job classes nor measure new ones.")
    ] = False,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with a run that was cut off.")] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Draw no report.html and no trace.pftrace at the end.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the jobs of a file, sharing the device between them."""
    from ecoshare.hardware import devices
    from ecoshare.jobs.load import load
    from ecoshare.jobs.quantities import parse_size_bytes
    from ecoshare.measure.profiles import ProfileStore, default_folder
    from ecoshare.runtime import plan as planning
    from ecoshare.runtime import session

    errors = Console(stderr=True, highlight=False)
    if resume is not None:
        if jobs is not None:
            raise UsageError("--resume takes the job file from the run; give one or the other")
        given = (policy, option, device, jobs_per_lane, memory, profiles) != (None,) * 6
        given = given or lanes is not None or objective != "energy" or tuning_limit != TUNING_LIMIT
        if given or dry_run or no_profiles:
            raise UsageError(
                "--resume takes its options from the run; only --control, --json and --no-report go with it"
            )
        result = session.resume(resume, _progress(errors), control is not Control.OFF, control is Control.AUTO)
        if not result.ran:
            errors.print(f"note: every job of {resume} has ended already; there is nothing to go on with", markup=False)
    else:
        if jobs is None:
            raise UsageError("give a job file, or --resume RUN", "`ecoshare init` writes a job file to begin with")
        try:
            memory_bytes = parse_size_bytes(memory) if memory is not None else None
        except ValueError as error:
            raise UsageError(f"--memory {memory}: {error}") from error
        if option and policy is None:
            raise UsageError("--option is a policy's: name it with --policy")
        loaded = load(jobs)
        plan = planning.make(
            loaded,
            devices.find(device),
            objective=objective,
            policy=policy,
            options=tuple(option or ()),
            lanes=lanes,
            places=jobs_per_lane if jobs_per_lane is not None else planning.PLACES,
            memory_bytes=memory_bytes,
            store=None if no_profiles else ProfileStore(profiles or default_folder()),
            control=control is not Control.OFF,
            goal=_goal(objective, tuning_limit, planning.MOST_TRIALS) if control is Control.AUTO else None,
        )
        for note in plan.notes:
            _note(note)
        if dry_run:
            _print_plan(plan.as_dict(), as_json)
            return
        result = session.start(plan, loaded.text, runs, _progress(errors))

    from ecoshare.reporting import ending  # only now: the run need not wait for it
    from ecoshare.reporting.table import print_summary
    from ecoshare.runtime.settings import not_restored

    for note in result.notes:
        _note(note)
    summary = result.data.summary
    if as_json:
        print(json.dumps(summary, indent=2), flush=True)
    else:
        print_summary(summary, Console(highlight=False))
    # Last, since it takes a second or two, and nobody should wait for the table.
    if not no_report and ending.draw(result.folder, result.data, _note) and not as_json:
        print(f"report: {summary['run']}/{result.folder.report.name}", flush=True)
    if result.unrestored:
        raise not_restored(result.unrestored)
    _judge(summary)


@app.command()
def profile(
    script: Annotated[Path, typer.Argument(metavar="MODEL.PY", help="A script; or a saved profile, to show it.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.")] = None,
    iterations: Annotated[
        int | None,
        typer.Option(min=1, help="Measure at least so many after the warm-up, instead of until it is steady."),
    ] = None,
    compare: Annotated[str | None, typer.Option(metavar="PROFILE", help="Another one to show beside it.")] = None,
    device: DeviceOption = None,
    profiles: ProfilesOption = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Measure what a script needs: memory phases, time and joules an iteration."""
    from ecoshare.hardware import devices
    from ecoshare.measure.profiles import ProfileStore, default_folder
    from ecoshare.reporting.memory_timeline import svg
    from ecoshare.reporting.profile import print_comparison, print_profile
    from ecoshare.reporting.progress import Expendable, MeasuringProgress
    from ecoshare.runtime.folder import write_text
    from ecoshare.runtime.single import profile_script, saved_profile

    store = ProfileStore(profiles or default_folder())
    other = saved_profile(compare, store) if compare is not None else None
    saved = script.suffix == ".json"
    if saved and args:
        raise UsageError(f"{script} is a saved profile, and takes no arguments")
    if saved:
        made = saved_profile(str(script), store)
    else:
        store.make()
        errors = Console(stderr=True, highlight=False)
        made, result = profile_script(
            script,
            args or [],
            devices.find(device),
            store,
            runs,
            Expendable(MeasuringProgress(errors)),
            _note,
            iterations,
        )
        for note in result.notes:
            _note(note)
    console = Console(highlight=False)
    if as_json:
        print(made.model_dump_json(indent=2))
    elif other is not None:
        print_comparison(other, made, console)
    else:
        print_profile(made, console)
    if not saved:
        drawing = store.folder / f"{made.job_class}.svg"
        write_text(drawing, svg(made))
        if not as_json:
            print(f"\nprofile: {store.folder / made.job_class}.json\ndrawing: {drawing}")
            print(f"run folder: {result.data.summary['run']}", flush=True)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("jobs.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented job file to begin with."""
    from ecoshare.jobs.template import TEMPLATE

    if path.is_dir():
        path = path / "jobs.yaml"
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "--force replaces it")
    try:
        path.write_text(TEMPLATE)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    Console(stderr=True, soft_wrap=True).print(
        f"wrote {path}: name your scripts in it, then `ecoshare run {path}`", markup=False
    )


@app.command()
def devices(as_json: JsonOption = False) -> None:
    """Show each device's knobs: ranges, present values, and whether this user may set them. Sets nothing."""
    from ecoshare.tuning_cli import show_devices

    show_devices(as_json)


@app.command()
def restore(
    force: Annotated[
        bool, typer.Option("--force", help="Put back also what somebody else has set since the run died.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put back clocks and power that a run has left, where both it and its guard were killed."""
    from ecoshare.tuning_cli import restore_all

    restore_all(force, as_json)


@app.command()
def tune(
    jobs: Annotated[
        Path | None, typer.Argument(metavar="JOBS.YAML|MODEL.PY", help="Jobs that share the device, or one script.")
    ] = None,
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the script.")] = None,
    device: DeviceOption = None,
    lanes: Annotated[
        int | None,
        typer.Option(min=1, help="Lanes of the packing; by default one for each job, up to 3, as in `ecoshare run`."),
    ] = None,
    knobs: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Those to set, such as gpu_clock,power_limit; by default all.")
    ] = None,
    assume_unlocked: Annotated[
        bool, typer.Option("--assume-unlocked", help="Lock clocks also where it cannot be seen that nobody else has.")
    ] = False,
    profiles: ProfilesOption = None,
    runs: RunsOption = Path("runs"),
    replay: Annotated[
        Path | None, typer.Option(metavar="TABLE.CSV", help="Search in a measured table instead of on a device.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=COLUMN[:UNIT],...",
            help="What the table's columns are. Knobs: core_clock (MHz, GHz), memory_clock, power_limit (W, mW), "
            "work_size (such as a batch size; times are then those of a fixed amount of work), other (any number of "
            "them). Measured: power (W, mW), time (s, ms, us; one for each job). "
            "Such as 'power_limit=limit:W, work_size=batch, time=epoch_s, power=watts'.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE,...", help="The table's rows to use, such as network=resnet50."),
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB=NUMBER,...",
            help="The default setting by the names of the columns, such as 'limit=300, batch=256'; clocks and "
            "power limits that are not named are at their largest.",
        ),
    ] = None,
    objective: Annotated[str, typer.Option(help="energy, edp, jct or makespan.")] = "energy",
    tuning_limit: Annotated[
        float, typer.Option(help="Most that an iteration may take, over the same at the default setting.")
    ] = TUNING_LIMIT,
    budget: Annotated[int, typer.Option(min=1, help="Most trials.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the search and the noise; equal ones give equal searches.")] = 0,
    noise: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="Put on each number of the table: 0.02 is 2 percent.")
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
        from ecoshare.hardware.devices import find
        from ecoshare.runtime.tune import Tune
        from ecoshare.tuning_cli import knob_names, tune_live

        goal = _goal(objective, tuning_limit, budget, seed)
        asked = Tune(jobs, args or [], find(device), goal, lanes, knob_names(knobs), assume_unlocked)
        tune_live(asked, profiles, runs, plot, as_json, _note)
        return
    if jobs is not None:
        raise UsageError(f"{jobs} and --replay {replay}: give one or the other")
    if device or knobs or assume_unlocked or lanes is not None:
        raise UsageError("--device, --lanes, --knobs and --assume-unlocked are for jobs on a device, not for --replay")
    from ecoshare.advise.columns import EXAMPLE
    from ecoshare.advise.table_file import read
    from ecoshare.reporting.tuning_picture import check_picture

    if not columns:
        raise UsageError(f"what are the columns of {replay}?", f"such as --columns {EXAMPLE}; `ecoshare tune --help`")
    if plot is not None:
        check_picture(plot)
    table = read(replay, columns, where or [])
    at = table.default(default or [])

    from ecoshare.advise.replay import Replay  # torch takes seconds, and most mistakes are found before
    from ecoshare.measure.tuned import TrialRecord
    from ecoshare.reporting.tuning import TrialLines, knobs_of, print_result, replayed
    from ecoshare.reporting.tuning_picture import draw, ground_of

    try:
        searching = Replay(table, at, objective, tuning_limit, budget, seed, noise)
    except ValueError as error:
        raise UsageError(str(error)) from error
    lines = TrialLines(knobs_of(searching), Console(stderr=as_json, highlight=False), achieved=False)
    lines.heading()
    for trial in searching.trials():
        lines.line(TrialRecord.model_validate(trial.as_dict()))
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


def _goal(objective: str, tuning_limit: float, budget: int, seed: int = 0) -> Goal:
    if not (math.isfinite(tuning_limit) and tuning_limit >= 1.0):
        raise UsageError(f"--tuning-limit {tuning_limit:g}: expected a number of at least 1")
    return Goal(objective, tuning_limit, budget, seed)


app.command("simulate")(simulate_cli.simulate)


@app.command()
def schema() -> None:
    """Print the JSON Schema of job files."""
    from ecoshare.jobs.schema import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Check what this machine offers: device, torch, MPS, energy meters, permissions."""
    from ecoshare.reporting.doctor import examine, print_findings

    findings = examine()
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        print_findings(findings, Console(highlight=False))
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(4)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; runs/latest is the newest.")],
    form: Annotated[str, typer.Option("--format", help="csv, json, parquet, html or perfetto.")] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
) -> None:
    """Print the result of a run, also of one that was cut off or still goes on."""
    from ecoshare.reporting import export as exporting
    from ecoshare.runtime.folder import RunFolder

    exporting.check(form)
    if form in exporting.BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {form} is nothing for a terminal", "name a file with --output, or pipe it")
    content = exporting.export(RunFolder.open(run), form)
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; runs/latest is the newest.")],
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="One job in full; else all in short.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why each job of a run waited, shared the device or ran alone, and what came of it."""
    from ecoshare.reporting.explaining_text import show

    show(run, job, as_json)


def _note(words: str) -> None:
    """A line on stderr, where anybody reads it."""
    from ecoshare.reporting.sentences import filled

    # Not by rich, which ends the program where stderr is closed.
    with contextlib.suppress(OSError):
        print(filled(f"note: {words}", Console(stderr=True)), file=sys.stderr, flush=True)


def _progress(console: Console) -> Any:
    from ecoshare.reporting.progress import Expendable, LiveProgress, PlainProgress

    return Expendable(LiveProgress(console) if console.is_terminal else PlainProgress(console))


def _print_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan, indent=2))
        return
    from ecoshare.reporting.plan import print_plan

    print_plan(plan, Console(highlight=False))


def _judge(summary: dict[str, Any]) -> None:
    """Turn a result into an exit code."""
    from ecoshare.reporting.summary import outcomes

    if summary["state"] == "interrupted":
        raise Interrupted("the run was stopped", f"`ecoshare run --resume {summary['run']}` goes on with it")
    states = outcomes(summary)
    bad = [name for name, state in states.items() if state != "completed"]
    if bad:
        said = next((job["name"] for job in summary["jobs"] if bad[0] in (job["name"], job["sweep"])), bad[0])
        raise JobFailed(
            f"{len(bad)} of {counted(len(states), 'job')} did not complete: {', '.join(bad[:5])}",
            f"what they said is in {summary['run']}/jobs/{said}/stderr.log" + (" and so on" if len(bad) > 1 else ""),
        )
    broken = [job["name"] for job in summary["jobs"] if job["slowdown_limit_met"] is False]
    if broken:
        raise LimitNotMet(f"slower than their `slowdown:` limit: {', '.join(broken[:5])}")
