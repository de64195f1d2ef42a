"""`ecoshare explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecoshare.cli import completion
from ecoshare.cli.options import JsonOption


def explain(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run folder; runs/latest is the newest.", autocompletion=completion.runs),
    ],
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="One job in full; else all in short.", autocompletion=completion.jobs),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why each job of a run waited, shared the device or ran alone, and what came of it."""
    from ecoshare.reporting.explaining_text import show

    show(run, job, as_json)
