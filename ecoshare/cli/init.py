"""`ecoshare init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ecoshare.errors import UsageError

MOST_SCRIPTS = 20
"""Most jobs in a new job file. A folder with more scripts is not one experiment."""


def init(
    path: Annotated[Path, typer.Argument(help="Path of the job file to write.")] = Path("jobs.yaml"),
    example: Annotated[
        bool, typer.Option("--example", help="Write two small training scripts, too: they run at once.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write a commented job file that names the training scripts of its folder.

    Scripts are looked for in the folder of the file and one level below it. They import torch and train.
    """
    from ecoshare.jobs.template import template
    from ecoshare.runtime.training_scripts import training_scripts

    if path.is_dir():
        path = path / "jobs.yaml"
    folder = path.parent
    # The scripts are written first: the job file names them.
    files = example_scripts(folder) if example else {}
    _check_absent([*files, path], force)
    found = list(files) or training_scripts(folder)
    if not found:
        raise UsageError(
            f"no training script in {_named(folder)}: no file there, nor one level below, imports torch and trains",
            "`ecoshare init --example` writes two scripts and a job file that run at once; "
            "`ecoshare run SCRIPT.PY` runs any script",
        )
    scripts = [script.relative_to(folder) for script in found]
    files[path] = template(scripts[:MOST_SCRIPTS], path.name).encode()
    for file, content in files.items():
        _write(file, content)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    if len(scripts) > MOST_SCRIPTS:
        left_out = len(scripts) - MOST_SCRIPTS
        console.print(f"note: {left_out} more training scripts are there; add those that you want", markup=False)
    names = ", ".join(script.as_posix() for script in scripts[:MOST_SCRIPTS])
    words = "with the scripts" if example else "for"
    console.print(f"wrote {path} {words} {names}: `ecoshare run {path}` runs them", markup=False)


def example_scripts(folder: Path) -> dict[Path, bytes]:
    """Contents of the example scripts by their paths in `folder`."""
    from importlib.resources import files

    scripts = [each for each in files("ecoshare").joinpath("example").iterdir() if each.name.endswith(".py")]
    return {folder / each.name: each.read_bytes() for each in sorted(scripts, key=lambda each: each.name)}


def _check_absent(paths: list[Path], force: bool) -> None:
    for path in paths:
        if path.exists() and not force:
            raise UsageError(f"{path} exists", "--force replaces it")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _named(folder: Path) -> str:
    return "this folder" if folder == Path() else str(folder)
