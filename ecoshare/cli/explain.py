"""`ecoshare explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from ecoshare.cli import completion
from ecoshare.cli.options import JsonOption, RunArgument


def explain(
    run: RunArgument,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="One job in full; else all in short.", autocompletion=completion.jobs),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why each job of a run waited, shared the device or ran alone, and what came of it."""
    from ecoshare.reporting.explanation_text import show

    show(run, job, as_json)
