"""`ecoshare run`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ecoshare.api import run_jobs
from ecoshare.api.run_jobs import ResumeRequest, RunRequest
from ecoshare.base.disk import RUNS
from ecoshare.cli import completion
from ecoshare.cli.classes import words_after
from ecoshare.cli.named_runs import named_run
from ecoshare.cli.options import JsonOption, RunsOption, is_given, takes
from ecoshare.cli.output import meter_is_news, note, progress, while_read
from ecoshare.errors import UsageError
from ecoshare.option_fields import options_of
from ecoshare.run_options import RunOptions

if TYPE_CHECKING:
    from ecoshare.api.run_result import RunResult
    from ecoshare.runtime.planning.plan import Plan

JobsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="JOBS.YAML | SCRIPT.PY",
        help="A job file; see `ecoshare init`. Or scripts, one job each; all get the arguments after `--`.",
    ),
]


@takes(RunOptions)
def run(
    context: typer.Context,
    jobs: JobsArgument = None,
    *,
    asked: dict[str, Any],
    runs: RunsOption = RUNS,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="An interrupted run to resume: its folder, or its name in `ecoshare runs`.",
            autocompletion=completion.runs,
        ),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Draw no report.html and no trace.pftrace at the end.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the run, which its folder has; with -d that of the job. Default: that of the file."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Give the jobs to the queue, which is opened if it is down, and return."),
    ] = False,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Queue of -d.", autocompletion=completion.queues)
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print a line for each start and end, instead of a live table.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the result alone: no progress, no notes.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the jobs of a file, or scripts, sharing devices between them."""
    from ecoshare.runtime.signals import CommandSignals

    if verbose and quiet:
        raise UsageError("-v and -q: give one of them")
    tell = (lambda _words: None) if quiet else note
    errors = Console(stderr=True, highlight=False)
    show = partial(progress, errors, verbose, quiet)
    if queue is not None and not detach:
        raise UsageError("--queue names the queue of -d: give both")
    if detach:
        _hand_over(context, jobs, queue, name, tell, as_json)
        return
    if resume is not None:
        if jobs or words_after(context):
            raise UsageError("--resume takes the jobs from the run; give one or the other")
        own = options_of(RunOptions).keys() - options_of(ResumeRequest).keys() - {"control"}
        if any(is_given(context, each) for each in (*own, "name", "dry_run")):
            raise UsageError(
                "--resume takes its options from the run; only --control, --on and its options, --json and "
                "--no-report go with it"
            )
        result = run_jobs.resume(
            ResumeRequest(
                run=named_run(resume, runs),
                control=asked["control"],
                **{each: asked[each] for each in options_of(ResumeRequest)},
                note=tell,
                progress=show,
                signals=CommandSignals(),
            )
        )
        if not result.ran:
            tell(f"every job of {resume} has ended already; there is nothing to go on with")
    else:
        if not jobs:
            raise UsageError(
                "give a job file, scripts, or --resume RUN", "`ecoshare init` writes a job file to begin with"
            )
        request = RunRequest(
            jobs=jobs,
            args=words_after(context),
            runs=runs,
            name=name,
            **asked,
            note=tell,
            progress=show,
            signals=CommandSignals(),
        )
        if dry_run:
            _print_plan(run_jobs.plan(request), as_json)
            return
        result = run_jobs.run(request)
    for line in result.notes:
        tell(line)
    with while_read():
        _print_result(result, as_json)
    # The report comes last: it takes a second or two, and the user should not wait for the table.
    report = None if no_report else result.draw_report(tell)
    if report is not None and not as_json:
        with while_read():
            print(f"report: {result.summary.run}/{report.name}")
    result.check()


def _hand_over(
    context: typer.Context,
    jobs: list[Path] | None,
    queue: str | None,
    name: str | None,
    tell: Callable[[str], None],
    as_json: bool,
) -> None:
    """Give the jobs to a queue in the background.

    Raises:
        UsageError: Options are given that a queue has no use for.
    """
    from ecoshare.cli.submit import hand_in
    from ecoshare.cli.up import open_for

    for option in ("resume", "dry_run", "runs", "no_report"):
        if is_given(context, option):
            raise UsageError(f"--{option.replace('_', '-')} does not go with -d: the run is that of the queue")
    if not jobs:
        raise UsageError("give a job file or scripts")
    which = queue or os.environ.get("ECOSHARE_QUEUE") or "default"
    if opened := open_for(context, which, jobs, words_after(context)):
        tell(opened)
    names = hand_in(which, jobs, words_after(context), as_json, {"name": name})
    option = "" if which == "default" else f" --queue {which}"
    follows = f"`ecoshare logs{option} -f {names[0]}` follows the output"
    tell(f"{follows}, `ecoshare status{option}` lists the jobs, `ecoshare down{option}` ends the queue")


def _print_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan.as_dict(), indent=2))
        return
    from ecoshare.reporting.plan_text import print_plan

    print_plan(plan.document(), Console(highlight=False))


def _print_result(result: RunResult, as_json: bool) -> None:
    from ecoshare.reporting.plan_text import fused_words  # imported only now, so that the run does not wait for it
    from ecoshare.reporting.tables.run_table import print_summary

    if as_json:
        print(json.dumps(result.summary.as_dict(), indent=2), flush=True)
        return
    print_summary(result.summary, Console(highlight=False), meter_is_news(result.summary))
    for line in fused_words(result.data.history):
        print(line, flush=True)
