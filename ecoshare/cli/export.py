"""`ecoshare export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ecoshare.cli import completion
from ecoshare.cli.named_runs import RunArgument, named_run, newest_run
from ecoshare.errors import UsageError


def export(
    run: RunArgument = None,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="csv, json, parquet, html, perfetto or prometheus.", autocompletion=completion.formats
        ),
    ] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
) -> None:
    """Print the result of a run, also of one that was cut off or still goes on."""
    from ecoshare.record.run_folder import RunFolder
    from ecoshare.reporting import exports as exporting

    exporting.check(form)
    if form in exporting.BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"--format {form} is nothing for a terminal", "name a file with --output, or pipe it")
    folder = RunFolder.open(newest_run() if run is None else named_run(run))
    if output is not None and folder.keeps(output):
        raise UsageError(f"{output} belongs to the run itself", "name another file with --output")
    content = exporting.export(folder, form)
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
