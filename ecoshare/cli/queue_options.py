"""Options and arguments of the commands that ask a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from ecoshare.cli import completion

QueueOption = Annotated[
    str,
    typer.Option(
        "--name", "--queue", help="Name of the queue.", autocompletion=completion.queues, envvar="ECOSHARE_QUEUE"
    ),
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Job of the queue.", autocompletion=completion.queued_jobs)
]
SomeJobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Jobs of the queue.", autocompletion=completion.queued_jobs),
]
EndedJobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs of the queue.", autocompletion=completion.ended_jobs)
]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs of the queue.", autocompletion=completion.queued_jobs)
]
