"""`ecoshare wait`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ecoshare.cli.output import note
from ecoshare.cli.queue_options import JobsArgument, QueueOption
from ecoshare.queue.queue_folder import DEFAULT_NAME

if TYPE_CHECKING:
    from ecoshare.api.queue_client import Queue


def wait(jobs: JobsArgument, name: QueueOption = DEFAULT_NAME) -> None:
    """Wait for the ends of jobs. The exit code is that of the first job without success, or 1 if it has none."""
    from ecoshare.api.queue_client import Queue

    if failed := ended(Queue(name), jobs):
        raise failed


def ended(queue: Queue, jobs: Sequence[str]) -> typer.Exit | None:
    """Wait for the ends of jobs, and say how those without success ended.

    Returns:
        Exit with the code of the first of those; None if there is none.
    """
    code = 0
    for job in queue.wait(*jobs):
        if job.state != "completed":
            why = f": {job.reason}" if job.reason else ""
            note(f"{job.name} {job.state}{why}")
            code = code or job.exit_code or 1
    return typer.Exit(code) if code else None
