"""`ecoshare cancel`, `retry`, `hold`, `release` and `priority`: what a user asks of single jobs of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ecoshare.cli.options import EndedJobsArgument, JobArgument, QueueOption, SomeJobsArgument
from ecoshare.cli.output import note
from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME

if TYPE_CHECKING:
    from ecoshare.queue.queue_documents import JobsChanged


def cancel(
    jobs: SomeJobsArgument = None,
    name: QueueOption = DEFAULT_NAME,
    all_jobs: Annotated[bool, typer.Option("--all", help="Cancel all jobs that have not ended.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Kill them instead of ending them at a boundary.")] = False,
) -> None:
    """Cancel jobs and sweeps: those that can be. It says why others cannot, and exits with 2 then."""
    from ecoshare.api.queue_client import Queue

    if jobs and all_jobs:
        raise UsageError("jobs and --all: give one of them")
    done = Queue(name).cancel(*(jobs or ()), at_once=now, all_jobs=all_jobs)
    if all_jobs and not done.jobs:
        note("no job is left to cancel")
    _tell(done)


def retry(jobs: EndedJobsArgument, name: QueueOption = DEFAULT_NAME) -> None:
    """Run jobs again that have failed or were cancelled, under their names, with those that were cancelled for them.

    It prints the names of all jobs that run again, says why others cannot, and exits with 2 then.
    """
    from ecoshare.api.queue_client import Queue

    _tell(Queue(name).retry(*jobs))


def _tell(done: JobsChanged) -> None:
    """Print the jobs for which something was done.

    Raises:
        UsageError: It could not be done for others.
    """
    for job in done.jobs:
        print(job, flush=True)
    if done.refused:
        raise UsageError("\n".join(done.refused.values()))


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
