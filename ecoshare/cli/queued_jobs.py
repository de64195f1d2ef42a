"""`ecoshare cancel`, `hold`, `release` and `priority`: what a user asks of single jobs of a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from ecoshare.cli.queue_options import JobArgument, JobsArgument, QueueOption
from ecoshare.queue.queue_folder import DEFAULT_NAME


def cancel(
    jobs: JobsArgument,
    name: QueueOption = DEFAULT_NAME,
    now: Annotated[bool, typer.Option("--now", help="Kill them instead of ending them at a boundary.")] = False,
) -> None:
    """Cancel jobs and sweeps: all of them, or none if one cannot be cancelled."""
    from ecoshare.api.queue_client import Queue

    Queue(name).cancel(*jobs, at_once=now)


def hold(job: JobArgument, name: QueueOption = DEFAULT_NAME) -> None:
    """Keep a job that waits from starting, until it is released."""
    from ecoshare.api.queue_client import Queue

    Queue(name).hold(job)


def release(job: JobArgument, name: QueueOption = DEFAULT_NAME) -> None:
    """Let a held job start again."""
    from ecoshare.api.queue_client import Queue

    Queue(name).release(job)


def priority(
    job: JobArgument,
    value: Annotated[int, typer.Argument(metavar="NUMBER", help="A higher number goes first.")],
    name: QueueOption = DEFAULT_NAME,
) -> None:
    """Give a job another priority. It counts under the policy `priority`."""
    from ecoshare.api.queue_client import Queue

    Queue(name).prioritise(job, value)
