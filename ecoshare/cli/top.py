"""`ecoshare top`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecoshare.cli import completion
from ecoshare.cli.named_runs import named_run
from ecoshare.cli.options import QueueOption
from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import DEFAULT_NAME


def top(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run to play: its folder, or its name in `ecoshare runs`, such as latest; else a queue.",
            autocompletion=completion.runs,
        ),
    ] = None,
    name: QueueOption = DEFAULT_NAME,
    speed: Annotated[
        float | None, typer.Option("--speed", help="Seconds of the run that are played in one second; 1 by default.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Time of the run to begin at, such as 60s or 5min.")
    ] = None,
) -> None:
    """Show devices and jobs of a queue in the terminal, with keys to change them; or play a recorded run."""
    from ecoshare.top.terminal import check_terminal, show

    check_terminal()
    if run is None:
        if speed is not None or begin is not None:
            raise UsageError("--speed and --from are for a recorded run", "name its folder")
        from ecoshare.api.queue_client import Queue
        from ecoshare.top.live_top import LiveTop
        from ecoshare.top.queue_watch import ENDED

        queue = Queue(name)
        first = queue.status(ENDED)  # before the view: a wrong name is an error as for any other command
        show(LiveTop(queue, first))
        return
    at_speed, begin_s = _speed(speed), _begin_s(begin)
    from ecoshare.record.run_folder import RunFolder
    from ecoshare.top.played_top import PlayedTop
    from ecoshare.top.recorded_run import RecordedRun

    show(PlayedTop(RecordedRun(RunFolder.open(named_run(run))), at_speed, begin_s))


def _speed(speed: float | None) -> float:
    if speed is None:
        return 1.0
    if not 0.0 < speed <= 1e6:
        raise UsageError(f"--speed {speed:g}: expected a number above 0, and at most a million")
    return speed


def _begin_s(begin: str | None) -> float:
    from ecoshare.jobs.quantities import parse_duration_s

    try:
        return parse_duration_s(begin) if begin is not None else 0.0
    except ValueError as error:
        raise UsageError(f"--from {begin}: {error}") from error
