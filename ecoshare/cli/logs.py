"""`ecoshare logs`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ecoshare.base.disk import RUNS
from ecoshare.base.printable import TerminalText
from ecoshare.cli.named_runs import (
    JobOfRunArgument,
    OneQueueOption,
    RunOrJobArgument,
    RunsFolderOption,
    named_job,
    the_job_of,
)

_ENDED = ("completed", "failed", "cancelled", "pruned")
_LOOK_S = 1.0
"""Time (s) between two looks whether a job that has an exit record has ended, or goes on with another attempt."""


def logs(
    run: RunOrJobArgument = None,
    job: JobOfRunArgument = None,
    queue: OneQueueOption = None,
    runs: RunsFolderOption = RUNS,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Print what the job wrote to stderr.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Begin with so many last lines.")] = None,
) -> None:
    """Print the output of a job's last attempt: of the queue, or of a run.

    A file or a pipe gets it as it was written, a terminal without what could act on it.
    """
    named = named_job([each for each in (run, job) if each is not None], runs, queue)
    if named.queue and _is_up(named.queue):
        from ecoshare.api.queue_client import Queue

        which = named.job or the_job_of(named)
        write = _writer()
        for chunk in Queue(named.queue).output(which, errors=stderr, follow=follow, lines=lines):
            write(chunk)
        return
    which = the_job_of(named)
    from ecoshare.lane.files import outputs
    from ecoshare.record.run_folder import RunFolder

    path = outputs(RunFolder.open(named.run).job(which))[stderr]
    asyncio.run(_print(path, lines, _is_over(named.run, which) if follow else None))
    if named.queue and follow:
        from ecoshare.api.queue_client import Queue

        Queue(named.queue).wait(which)  # the queue is down: an error, unless the job has ended


def _is_up(queue: str) -> bool:
    from ecoshare.queue.queue_folder import QueueFolder

    return QueueFolder.of(queue).is_up()


async def _print(path: Path, lines: int | None, is_over: Callable[[], bool] | None) -> None:
    from ecoshare.queue.job_output import output

    write = _writer()
    async for chunk in output(path, lines, is_over):
        write(chunk)


def _writer() -> Callable[[bytes], None]:
    """Function that prints chunks: as they are, or for a terminal what changes nothing but text and colour."""
    text = TerminalText() if sys.stdout.isatty() else None

    def write(chunk: bytes) -> None:
        if text is None:
            sys.stdout.buffer.write(chunk)
        else:
            sys.stdout.write(text.take(chunk))
        sys.stdout.flush()

    return write


def _is_over(run: Path, job: str) -> Callable[[], bool]:
    """Function that tells whether nothing is added to the output of a job any more."""
    from ecoshare.lane.exit_records import exit_paths
    from ecoshare.record import event_log
    from ecoshare.record.results.job_summary import job_state
    from ecoshare.record.run_data import is_live
    from ecoshare.record.run_folder import RunFolder
    from ecoshare.record.run_history import RunHistory

    folder = RunFolder.open(run)
    looked_s = 0.0

    def is_over() -> bool:
        nonlocal looked_s
        if not is_live(folder):
            return True
        if not exit_paths(folder.job(job)) or time.monotonic() - looked_s < _LOOK_S:
            return False
        looked_s = time.monotonic()
        history = RunHistory(event_log.read(folder.events))
        return job_state(history.of(job), history.is_stopped, live=True) in _ENDED

    return is_over
