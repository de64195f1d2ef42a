"""`ecoshare init`."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from ecoshare.errors import UsageError
from ecoshare.lane.supervisor.warm_start import local_sources

_FRAMEWORKS: Final = frozenset({"torch", "lightning", "pytorch_lightning", "transformers", "accelerate"})
_SKIPPED: Final = frozenset({"__pycache__", "env", "ecoshare-runs", "node_modules", "runs", "site-packages", "venv"})
_LARGEST_BYTES: Final = 1_000_000
_MOST_FILES: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Facts:
    """Properties of one source file.

    Attributes:
        framework: Whether the file imports torch, or a library that trains with torch.
        trains: Whether the file calls `backward` or a step of an optimizer, or makes a `Trainer`.
        runs: Whether the file does more than define things when it is started.
    """

    framework: bool = False
    trains: bool = False
    runs: bool = False


def training_scripts(folder: Path) -> list[Path]:
    """Scripts in `folder` and one level below that look like training, sorted; those of `folder` come first.

    A script counts if it imports torch and trains. Both may happen in local modules that it imports. Hidden folders,
    virtual environments, `node_modules` and run folders are skipped. Files that cannot be read or parsed do not count.
    """
    known: dict[Path, _Facts] = {}

    def facts(path: Path) -> _Facts:
        if path not in known:
            known[path] = _facts(path)
        return known[path]

    found = []
    for path in _python_files(folder):
        if not facts(path).runs:
            continue
        own = [facts(path)]
        if not (own[0].framework and own[0].trains):
            own = [facts(each) for each in local_sources(path)]
        if any(each.framework for each in own) and any(each.trains for each in own):
            found.append(path)
    return found


def _python_files(folder: Path) -> list[Path]:
    """Python files in `folder` and one level below, at most `_MOST_FILES`: much data must not delay the command."""
    files, below = _entries(folder)
    for each in below:
        files += _entries(each)[0]
        if len(files) >= _MOST_FILES:
            break
    return files[:_MOST_FILES]


def _entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Python files and folders to look into, each sorted; none if `folder` cannot be read."""
    files, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED and not Path(entry.path, "pyvenv.cfg").exists():
                        folders.append(Path(entry.path))
                elif entry.name.endswith(".py") and entry.is_file() and entry.stat().st_size <= _LARGEST_BYTES:
                    files.append(Path(entry.path))
    except OSError:
        return [], []
    return sorted(files), sorted(folders)


def _facts(path: Path) -> _Facts:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return _Facts()
    nodes = list(ast.walk(tree))
    modules = set(_imported(nodes))
    return _Facts(
        framework=bool(modules & _FRAMEWORKS),
        trains=any(isinstance(node, ast.Call) and _trains(node.func) for node in nodes),
        runs=any(_acts(statement) for statement in tree.body),
    )


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _trains(function: ast.expr) -> bool:
    """Whether a call of `function` trains: `loss.backward`, `optimizer.step`, `Trainer`, `SFTTrainer`, `pl.Trainer`."""
    if isinstance(function, ast.Name):
        return function.id.endswith("Trainer")
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "step":
        owner = function.value
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        # Schedulers and simulated worlds have a `step`, too.
        return name.lower().startswith("opt") or name.lower().endswith(("optim", "optimizer", "opt"))
    return function.attr == "backward" or function.attr.endswith("Trainer")


def _acts(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    if isinstance(statement, ast.If):
        return _is_main_guard(statement.test)
    return isinstance(statement, ast.For | ast.While | ast.With)


def _is_main_guard(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


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
    from ecoshare.jobs.from_values import template

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
