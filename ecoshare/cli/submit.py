"""`ecoshare submit`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ecoshare.cli import completion
from ecoshare.cli.classes import words_after
from ecoshare.cli.options import JsonOption
from ecoshare.cli.output import note
from ecoshare.queue.queue_folder import DEFAULT_NAME


def submit(
    context: typer.Context,
    jobs: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOBS.YAML | SCRIPT.PY",
            help="A job file; see `ecoshare init`. Or scripts, one job each; all get the arguments after `--`.",
        ),
    ],
    queue: Annotated[
        str,
        typer.Option("--queue", help="Name of the queue.", autocompletion=completion.queues, envvar="ECOSHARE_QUEUE"),
    ] = DEFAULT_NAME,
    name: Annotated[str | None, typer.Option(help="Name of the job of a script; by default that of its file.")] = None,
    priority: Annotated[int | None, typer.Option(help="Priority of scripts; a higher number goes first.")] = None,
    slowdown: Annotated[float | None, typer.Option(help="Largest slowdown that scripts accept.")] = None,
    gpus: Annotated[int | None, typer.Option(help="Number of devices that each script needs at once.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB",
            help="Job or sweep that must complete before the scripts start; may be repeated.",
            autocompletion=completion.queued_jobs,
        ),
    ] = None,
    env_from: Annotated[
        str,
        typer.Option(
            metavar="none|listed|all",
            help="Environment of the jobs: all of this shell's, the variables of --env added to that of the queue, or "
            "that of the queue alone.",
        ),
    ] = "all",
    env: Annotated[
        list[str] | None, typer.Option(metavar="VARIABLE", help="Variable for --env-from listed; may be repeated.")
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Hold the jobs: none starts before `ecoshare release`.")] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the ends of the jobs, with an exit code as that of `ecoshare wait`."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give jobs to a queue that is up, and print the names that they were given."""
    from ecoshare.api.queue_client import EnvironmentFrom, Queue
    from ecoshare.cli.wait import ended

    given: dict[str, Any] = {"name": name, "priority": priority, "slowdown": slowdown, "gpus": gpus, "after": after}
    more: dict[str, Any] = {"env_from": cast(EnvironmentFrom, env_from), "variables": env or (), "held": hold}
    names = hand_in(queue, jobs, words_after(context), as_json, given, **more)
    if wait and (failed := ended(Queue(queue), names)):
        raise failed


def hand_in(
    queue: str, jobs: list[Path], args: Sequence[str], as_json: bool, options: Mapping[str, Any], **more: Any
) -> list[str]:
    """Submit jobs to a queue, and print the names that they were given. Options of None are not given."""
    from ecoshare.api.queue_client import Queue

    given = {key: value for key, value in options.items() if value is not None}
    answer = Queue(queue).submit(jobs, args, options=given, **more)
    for line in answer.notes:
        note(line)
    print(json.dumps(answer.model_dump()) if as_json else "\n".join(answer.jobs), flush=True)
    return answer.jobs
