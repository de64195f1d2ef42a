"""`ecoshare down`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ecoshare.base.plural import counted
from ecoshare.cli.options import QueueOption
from ecoshare.cli.output import note
from ecoshare.errors import Interrupted, UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME

if TYPE_CHECKING:
    from ecoshare.queue.queue_documents import JobStatus, QueueStatus


def down(
    name: QueueOption = DEFAULT_NAME,
    drain: Annotated[bool, typer.Option("--drain", help="Let the jobs that have started come to their ends.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Kill the jobs instead of ending them at a boundary.")] = False,
    clear: Annotated[
        bool,
        typer.Option(
            "--clear", help="Then forget all jobs and remove their data; also of a queue that is down already."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
) -> None:
    """End a queue, and return when it is down. Jobs that have not ended wait for `ecoshare up --resume`.

    On a terminal it asks first if jobs run that would begin again, or if `--clear` forgets jobs that have not ended.
    """
    from ecoshare.api.queue_client import Queue
    from ecoshare.queue.queue_folder import QueueFolder

    if drain and now:
        raise UsageError("--drain and --now: give one of them")
    queue, folder = Queue(name), QueueFolder.of(name)
    how: Literal["drain", "stop", "now"] = "drain" if drain else "now" if now else "stop"
    status = None if clear and folder.path.is_dir() and not folder.is_up() else queue.status(0)
    again = len(_in_place(status)) if status is not None and not drain else 0
    if clear:
        _check_forgotten(name, queue.left() if folder.database.exists() else [], yes)
    elif again and status is not None and not status.ending:
        begin = "begins" if again == 1 else "begin"
        words = f"{counted(again, 'running job')} {begin} again at the next `ecoshare up --resume{folder.option}`"
        if not (now or yes) and _is_asked():
            _confirm(f"{words}; `--drain` lets them end first. End the queue {name!r}?", name)
        else:
            note(words)
    if status is not None:
        try:
            queue.end(how)
        except Interrupted as error:
            hint = (
                f"`ecoshare down{folder.option}` ends them as well"
                if drain
                else f"see `ecoshare status{folder.option}`"
            )
            jobs = " once the jobs that have started have ended" if drain else ""
            raise Interrupted(f"interrupted; the queue {name!r} goes down all the same{jobs}", hint) from error
    if clear:
        queue.clear()
        print(f"the queue {name!r} is down and empty")
        return
    left = len(queue.left())
    waits = f"; {counted(left, 'job')} {'waits' if left == 1 else 'wait'} for `ecoshare up --resume{folder.option}`"
    print(f"the queue {name!r} is down{waits if left else ''}")


def _in_place(status: QueueStatus) -> set[str]:
    """Jobs and trials that have a process."""
    placed = {job for device in status.devices for lane in device.lanes for job in lane.jobs}
    return placed | {job.name for job in status.jobs if job.state in ("parking", "parked", "resuming", "stopping")}


def _check_forgotten(name: str, left: Sequence[JobStatus], yes: bool) -> None:
    """Check that the user wants to forget the jobs that have not ended.

    Raises:
        UsageError: There are some, and there is no terminal to ask on.
    """
    if not left or yes:
        return
    words = f"{counted(len(left), 'job')} of the queue {name!r} {'has' if len(left) == 1 else 'have'} not ended"
    if not _is_asked():
        raise UsageError(words, "`--clear --yes` forgets them")
    _confirm(f"{words}. Forget them?", name)


def _is_asked() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _confirm(question: str, name: str) -> None:
    """Ask a question on the terminal.

    Raises:
        Exit: The answer is no.
    """
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note(f"the queue {name!r} stays as it is")
        raise typer.Exit(1)
