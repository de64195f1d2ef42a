"""Runs and jobs as the words of a command name them.

::

    RUN     a run folder, or its name as `ecoshare runs` prints it; `latest`, and no word at all, is the newest
    JOB     a job of the queue, if that is up and has it; else of the newest run; else of the queue that is down
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecoshare.base.disk import RUNS
from ecoshare.base.plural import listed
from ecoshare.cli import completion
from ecoshare.cli.completion import beginning, past_runs, queued_jobs
from ecoshare.cli.output import note
from ecoshare.errors import UnfitEnvironment, UsageError, did_you_mean

if TYPE_CHECKING:
    from ecoshare.queue.queue_folder import QueueFolder


def runs_and_jobs(ctx: Any, incomplete: str) -> list[str]:
    """Jobs of the run that the command line already names; else jobs of the newest run, and run folders."""
    from ecoshare.record.run_folder import RunFolder

    run = ctx.params.get("run")
    found = [] if run else past_runs(ctx, incomplete)
    with suppress(OSError, ValueError, KeyError, TypeError):
        folder = ctx.params.get("runs") or RUNS
        plan = json.loads(RunFolder(named_run(run or "latest", folder)).plan.read_text())
        return [*beginning([job["name"] for job in plan["jobs"]], incomplete), *found]
    return found


def ran_jobs(ctx: Any, incomplete: str) -> list[str]:
    """Jobs of the queue that have not ended, jobs of runs, and run folders: see `runs_and_jobs`."""
    of_queue = [] if ctx.params.get("run") else queued_jobs(ctx, incomplete)
    return list(dict.fromkeys([*of_queue, *runs_and_jobs(ctx, incomplete)]))


RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="A run: its folder, or its name in `ecoshare runs`. Default: the newest.",
        autocompletion=completion.runs,
    ),
]
RunOrJobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="A run: its folder, or its name in `ecoshare runs`. Or a job alone. Default: the newest run.",
        autocompletion=ran_jobs,
    ),
]
JobOfRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="A job of the run; alone, one of the queue, if that has it, or else of the newest run.",
        autocompletion=ran_jobs,
    ),
]
OneQueueOption = Annotated[
    str | None,
    typer.Option("--queue", "--name", metavar="NAME", help="Queue of the job.", autocompletion=completion.queues),
]
RunsFolderOption = Annotated[
    Path, typer.Option("--runs", metavar="DIR", help="Folder with the run folders that are given by name.")
]


@dataclass(frozen=True, slots=True)
class NamedJob:
    """Run, and perhaps a job of it.

    Attributes:
        run: The run folder.
        job: Name of the job or trial; None for all.
        queue: Name of the queue that has the job; empty for a run that is none of a queue.
    """

    run: Path
    job: str | None = None
    queue: str = ""


def named_run(word: str | Path, runs: Path = RUNS) -> Path:
    """Run folder that a word names, which may not exist."""
    path = Path(word)
    return runs / path if path.name == str(word) and not _is_run(path) and _is_run(runs / path) else path


def newest_run(runs: Path = RUNS) -> Path:
    """Newest run folder in a folder.

    Raises:
        UsageError: There is none.
    """
    if _is_run(runs / "latest"):
        return runs / "latest"
    found = [each for each in runs.iterdir() if _is_run(each)] if runs.is_dir() else []
    if not found:
        raise UsageError(f"there is no run in {runs}", "name a run folder, or the folder of the runs with --runs")
    return max(found, key=lambda each: each.name)


def named_job(words: Sequence[str], runs: Path, queue: str | None) -> NamedJob:
    """Run and job that the words of a command name.

    Args:
        words: A run, a job, or both in this order.
        runs: Folder with the runs that are given by their names.
        queue: Name of the queue that the user gives; None for none.

    Raises:
        UsageError: They name nothing, or something is missing.
        UnfitEnvironment: There is no such queue.
    """
    from ecoshare.queue.queue_folder import DEFAULT_NAME, QueueFolder

    if queue is not None:
        folder = QueueFolder.of(queue)
        if not folder.database.exists():
            raise UnfitEnvironment(f"there is no queue {queue!r}", f"`ecoshare up --name {queue}` opens it")
        if len(words) == 2:
            raise UsageError("a run and --queue: give one of them")
        if not words:
            return NamedJob(newest_run(folder.runs), queue=queue)
        return _in_queue(folder, words[0]) or NamedJob(newest_run(folder.runs), words[0], queue)
    if not words:
        return NamedJob(newest_run(runs))
    if len(words) == 2:
        return NamedJob(named_run(words[0], runs), words[1])
    (word,) = words
    if "/" in word or _is_run(named_run(word, runs)):
        return NamedJob(named_run(word, runs))
    folder = QueueFolder.of(os.environ.get("ECOSHARE_QUEUE") or DEFAULT_NAME)
    of_queue = _in_queue(folder, word)
    newest = newest_run(runs) if of_queue is None else _newest_or_none(runs)
    is_in_newest = newest is not None and word in jobs_of(newest)
    if of_queue is not None and (folder.is_up() or not is_in_newest):
        if is_in_newest:
            note(f"{word} is a job of the queue {folder.name!r}; `latest {word}` names that of the newest run")
        return of_queue
    assert newest is not None
    if not is_in_newest:
        hint = did_you_mean(word, jobs_of(newest)) or f"the newest run is {newest.resolve().name}"
        raise UsageError(f"{word} is no run in {runs}, no job of the newest one, and none of the queue", hint)
    return NamedJob(newest, word)


def jobs_of(run: Path) -> list[str]:
    """Jobs and trials of a run: those that it began with, and those that have begun since."""
    from ecoshare.record.run_documents import read_plan
    from ecoshare.record.run_folder import RunFolder

    folder = RunFolder.open(run)
    begun = sorted(each.name for each in folder.jobs.iterdir()) if folder.jobs.is_dir() else []
    return list(dict.fromkeys([*(job.name for job in read_plan(folder.plan).jobs), *begun]))


def the_job_of(named: NamedJob) -> str:
    """Job that is named, or the only one of the run.

    Raises:
        UsageError: There is no such job, or there are several.
    """
    known = jobs_of(named.run)
    theirs = f"its jobs are {listed(known)}" if known else "it has none yet"
    if named.job is None and len(known) == 1:
        return known[0]
    if named.job is None:
        raise UsageError(f"the run {named.run.resolve().name} has not one job: name one of them", theirs)
    if named.job not in known:
        raise UsageError(f"{named.run} has no job {named.job!r}", did_you_mean(named.job, known) or theirs)
    return named.job


def _in_queue(folder: QueueFolder, name: str) -> NamedJob | None:
    """Job or trial of a queue; None if it has none of this name."""
    if not folder.database.exists():
        return None
    from ecoshare.jobs.sweep import sweep_of
    from ecoshare.queue.client import found_in

    row = found_in(folder, name) or (found_in(folder, sweep_of(name)) if sweep_of(name) else None)
    return None if row is None else NamedJob(folder.runs / row.run, name, folder.name)


def _newest_or_none(runs: Path) -> Path | None:
    try:
        return newest_run(runs)
    except UsageError:
        return None


def _is_run(path: Path) -> bool:
    from ecoshare.record.run_folder import RunFolder

    return RunFolder(path).plan.is_file()
