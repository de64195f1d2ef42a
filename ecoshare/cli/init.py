"""`ecoshare init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecoshare.errors import UsageError


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("jobs.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented job file to begin with."""
    from ecoshare.jobs.template import TEMPLATE

    if path.is_dir():
        path = path / "jobs.yaml"
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "--force replaces it")
    try:
        path.write_text(TEMPLATE)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    Console(stderr=True, soft_wrap=True).print(
        f"wrote {path}: name your scripts in it, then `ecoshare run {path}`", markup=False
    )
