"""`ecoshare logs`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ecoshare.cli.queue_options import JobArgument, QueueOption
from ecoshare.queue.queue_folder import DEFAULT_NAME


def logs(
    job: JobArgument,
    name: QueueOption = DEFAULT_NAME,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Print what the job wrote to stderr.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Begin with so many last lines.")] = None,
) -> None:
    """Print the output of a job's last attempt as it was written."""
    from ecoshare.api.queue_client import Queue

    for chunk in Queue(name).output(job, errors=stderr, follow=follow, lines=lines):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
