"""`ecoshare runs`: lists past runs and removes their folders."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from ecoshare.base.disk import RUNS
from ecoshare.cli import completion
from ecoshare.cli.classes import CommandGroup, HelpfulCommand
from ecoshare.cli.options import JsonOption
from ecoshare.cli.output import note
from ecoshare.errors import UsageError
from ecoshare.run_options import age_s

OwnRunsOption = Annotated[
    Path | None, typer.Option("--runs", help=f"Folder that holds run folders; else {RUNS} in the working folder.")
]
OfQueueOption = Annotated[
    str | None, typer.Option("--queue", help="Runs of the queue of this name.", autocompletion=completion.queues)
]

app = typer.Typer(
    name="runs",
    cls=CommandGroup,
    invoke_without_command=True,
)


@app.callback()
def list_runs(
    context: typer.Context,
    runs: OwnRunsOption = None,
    queue: OfQueueOption = None,
    as_json: JsonOption = False,
) -> None:
    """List past runs, the newest first; `rm` removes their folders.

    "jobs" counts trials, too. "energy" is that of all devices. It stands in the summary, which a run writes at its
    end. A run is interrupted if it has ended without a summary, or some of its jobs were cancelled. Notes say why a
    folder is damaged.
    """
    if context.invoked_subcommand is not None:
        if runs is not None or queue is not None or as_json:
            word = context.invoked_subcommand
            raise UsageError(f"options stand after `{word}`", f"such as `ecoshare runs {word} --runs DIR RUN`")
        return
    from rich.console import Console

    from ecoshare.record.past_runs import past_runs
    from ecoshare.reporting.tables.lists import print_runs

    folder = _folder(runs, queue)
    found = past_runs(folder)
    if as_json:
        print(json.dumps([each.as_dict() for each in found], indent=2))
        return
    if not found:
        note(f"no runs in {folder}")
        return
    print_runs(found, Console(highlight=False))
    print(f"\nfolder: {folder}", flush=True)
    for each in found:
        if each.fault:
            note(each.fault)


@app.command(cls=HelpfulCommand)
def rm(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Run folders; a name without `/` is one in the folder of runs.",
            autocompletion=completion.past_runs,
        ),
    ] = None,
    older: Annotated[
        str | None, typer.Option("--older", metavar="AGE", help="All runs that were opened longer ago, such as 30d.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    runs: OwnRunsOption = None,
    queue: OfQueueOption = None,
) -> None:
    """Remove run folders, with all logs and reports in them. There is no question and no way back.

    A run in progress is never removed. Nothing is removed if a name is wrong. The age does not count for a run of
    unknown time.
    """
    from ecoshare.record.past_runs import check_removable, remove

    folder = _folder(runs, queue)
    if bool(names) == (older is not None):
        raise UsageError("give either run folders or --older", "such as `ecoshare runs rm --older 30d`")
    paths = _older(folder, older) if older is not None else [_named(name, folder) for name in names or ()]
    for path in paths:
        check_removable(path)
    for path in dict.fromkeys(paths):
        if not dry_run:
            remove(path)
        print(f"{'would remove' if dry_run else 'removed'} {path}", flush=True)
    if not paths:
        note(f"no run in {folder} is that old")


def _folder(runs: Path | None, queue: str | None) -> Path:
    if queue is None:
        return runs or RUNS
    if runs is not None:
        raise UsageError("--runs and --queue contradict each other", "a queue has a folder of runs of its own")
    from ecoshare.queue.queue_folder import QueueFolder

    return QueueFolder.of(queue).runs


def _named(name: str, folder: Path) -> Path:
    return Path(name) if "/" in name else folder / name


def _older(folder: Path, age: str) -> list[Path]:
    """Folders of all runs that are older than an age and not in progress."""
    from ecoshare.record.past_runs import RUNNING, past_runs

    before_s = time.time() - age_s("--older", age)
    old = [each for each in past_runs(folder) if each.opened_unix_s is not None and each.opened_unix_s < before_s]
    for each in old:
        if each.state == RUNNING:
            note(f"{each.path} is still going on, and stays")
    return [each.path for each in old if each.state != RUNNING]
