"""Finds the scripts of a folder that look like training, from their syntax trees. No script is imported or run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ecoshare.lane.local_sources import local_sources

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
