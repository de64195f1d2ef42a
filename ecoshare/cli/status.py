"""`ecoshare status`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from ecoshare.cli import completion
from ecoshare.cli.options import JsonOption, QueueOption
from ecoshare.queue.queue_folder import DEFAULT_NAME


def status(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="One job or sweep.", autocompletion=completion.queued_jobs),
    ] = None,
    name: QueueOption = DEFAULT_NAME,
    ended: Annotated[int, typer.Option(min=0, help="How many of the jobs that have ended are listed.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the jobs of a queue: those that have not ended, and those that ended last."""
    from ecoshare.api.queue_client import Queue
    from ecoshare.reporting.tables.queue_table import print_job, print_queue

    queue, console = Queue(name), Console(highlight=False)
    if job is not None:
        one = queue.job(job)
        print(one.model_dump_json(indent=2)) if as_json else print_job(one.model_dump(), console)
        return
    found = queue.status(ended)
    print(found.model_dump_json(indent=2)) if as_json else print_queue(found.model_dump(), console)
