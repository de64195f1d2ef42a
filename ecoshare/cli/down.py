"""`ecoshare down`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ecoshare.cli.queue_options import QueueOption
from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME


def down(
    name: QueueOption = DEFAULT_NAME,
    drain: Annotated[bool, typer.Option("--drain", help="Let the jobs that have started come to their ends.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Kill the jobs instead of ending them at a boundary.")] = False,
) -> None:
    """End a queue, and return when it is down. Jobs that have not ended wait for `ecoshare up --resume`."""
    from ecoshare.api.queue_client import Queue

    if drain and now:
        raise UsageError("--drain and --now: give one of them")
    how: Literal["drain", "stop", "now"] = "drain" if drain else "now" if now else "stop"
    Queue(name).end(how)
    print(f"the queue {name!r} is down")
