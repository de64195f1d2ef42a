"""`ecoshare wait`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ecoshare.base.plural import listed
from ecoshare.cli.options import QueueOption, SomeJobsArgument
from ecoshare.cli.output import note
from ecoshare.errors import QueueDown
from ecoshare.queue.queue_folder import DEFAULT_NAME

if TYPE_CHECKING:
    from ecoshare.api.queue_client import Queue


def wait(jobs: SomeJobsArgument = None, name: QueueOption = DEFAULT_NAME) -> None:
    """Wait for the ends of jobs; of all that have not ended, if none is named.

    The exit code is that of the first job without success, or 1 if it has none. It is 7 if the queue goes down and some
    of the jobs wait for `ecoshare up --resume`.
    """
    from ecoshare.api.queue_client import Queue

    queue = Queue(name)
    if not jobs:
        left = queue.left()
        jobs = [each.name for each in left]
        if held := [each.name for each in left if each.state == "held"]:
            note(f"held until `ecoshare release`: {listed(held)}")
        if not jobs:
            note("no job is left to wait for")
            return
    if failed := ended(queue, jobs):
        raise failed


def ended(queue: Queue, jobs: Sequence[str]) -> typer.Exit | QueueDown | None:
    """Wait for the ends of jobs, and say how those without success ended.

    Returns:
        Exit with the code of the first of those, or the error that jobs wait for another session; None if there is
        neither.
    """
    code, down = 0, None
    try:
        found = queue.wait(*jobs)
    except QueueDown as error:
        down, found = error, [queue.job(job) for job in jobs if job not in error.jobs]
    for each in found:
        if each.state != "completed":
            why = f": {each.reason}" if each.reason else ""
            note(f"{each.name} {each.state}{why}")
            code = code or each.exit_code or 1
    return down or (typer.Exit(code) if code else None)
