"""`ecoshare up`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ecoshare.api.queue_up import QueueOptions, check_end, resumed
from ecoshare.api.queue_up import up as serve
from ecoshare.base.plural import counted
from ecoshare.cli.options import QueueOption, is_given, takes
from ecoshare.cli.output import note, progress
from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME, QueueFolder


@takes(QueueOptions)
def up(
    context: typer.Context,
    name: QueueOption = DEFAULT_NAME,
    *,
    asked: dict[str, Any],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the jobs that an earlier session has left, if there are any.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Serve the queue in the background; return when it takes jobs.")
    ] = False,
    print_unit: Annotated[
        bool,
        typer.Option("--print-unit", help="Print a systemd user unit that serves the queue with these options."),
    ] = False,
) -> None:
    """Open a queue: `ecoshare submit` gives it jobs, which share devices, until `ecoshare down` ends it."""
    from ecoshare.cli.background import command_line, detached, unit
    from ecoshare.queue.client import left_in
    from ecoshare.queue.tcp_entry import ListenAddress
    from ecoshare.runtime.signals import CommandSignals

    folder = QueueFolder.of(name)
    if detach and print_unit:
        raise UsageError("--detach and --print-unit: give one of them")
    if listen := asked["listen"]:  # a unit or a process in the background would tell a mistake late
        ListenAddress.parse(listen)
    if print_unit:
        print(unit(context), end="")
        return
    given = {each: value for each, value in asked.items() if is_given(context, each)}
    given |= {"name": name, "resume": resume, "wait": asked["wait"]}
    if detach:
        for line in resumed(None, given)[1]:  # the process in the background tells them in its log
            note(line)
        print(detached(command_line(context, wait=bool(context.params["wait"])), folder))
        return
    errors = Console(stderr=True, highlight=False)
    errors.print(
        f"the queue {name!r}: `ecoshare submit{folder.option} train.py` gives it a job, Ctrl-C ends it", markup=False
    )
    result = serve(**given, note=note, progress=partial(progress, errors), signals=CommandSignals())
    for line in result.notes:
        note(line)
    left = len(left_in(folder))
    waiting = f"{counted(left, 'job')} {'waits' if left == 1 else 'wait'} for `ecoshare up --resume{folder.option}`"
    note(f"the queue {name!r} is down; {f'{waiting}; ' if left else ''}its run is {result.folder}")
    check_end(result, name)


def open_for(context: typer.Context, queue: str, jobs: Sequence[Path], args: Sequence[str]) -> str:
    """Open a queue in the background for jobs of `ecoshare run`, with the options of that, if it is not up.

    Args:
        context: Context of the command.
        queue: Name of the queue.
        jobs: The jobs, which are checked before a queue is opened for them.
        args: Arguments of scripts.

    Returns:
        Lines for the user; empty if the queue was up.

    Raises:
        UsageError: The queue is up, and options are given that it could not take any more.
        EcoshareError: The jobs have mistakes, or the queue cannot be opened.
    """
    from ecoshare.cli.background import command_line, detached
    from ecoshare.jobs.from_values import given_jobs

    folder = QueueFolder.of(queue)
    own = set(inspect.signature(up).parameters) - {"context", "name", "resume", "detach"}
    given_jobs(jobs, args)
    if not folder.is_up():
        line = command_line(context, "up", own, wait=bool(context.params.get("wait")))
        return detached([*line, "--queue", queue], folder)
    flags = {str(each.name): max(each.opts, key=len) for each in context.command.params}
    if given := [flags[name] for name in sorted(own & flags.keys()) if is_given(context, name)]:
        raise UsageError(
            f"the queue {queue!r} is up with options of its own: {', '.join(given)} cannot be given now",
            f"leave them out, or end it with `ecoshare down{folder.option}`",
        )
    return ""
