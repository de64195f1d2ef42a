"""Finds the modules that a script imports from its own folder, by reading the sources without running them."""

from __future__ import annotations

import ast
import os
from functools import lru_cache
from pathlib import Path


def local_modules(folder: Path) -> dict[str, str]:
    """Top-level modules that a script in `folder` finds there first, with the paths of their files."""
    found: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found[entry.name[:-3]] = entry.path
                elif entry.is_dir() and os.path.isfile(package := f"{entry.path}/__init__.py"):  # noqa: PTH113
                    found[entry.name] = package
    except OSError:
        pass  # the start of the script reports what is wrong with the folder
    return found


def local_sources(script: Path, modules: dict[str, str] | None = None) -> list[Path]:
    """The script and the local modules that it imports, directly or through other modules; the script first.

    Imports are read from the syntax tree. The import of a package counts as an import of its whole folder. Imports by
    strings are not seen. A file that cannot be parsed imports nothing.

    Args:
        modules: `local_modules` of the script's folder; None to find them here.
    """
    if modules is None:
        modules = local_modules(script.parent)
    found: dict[Path, None] = {}
    todo = [script]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = None
        for name in _imported(path):
            if name not in modules or (source := Path(modules[name])) in found:
                continue
            todo.append(source)
            if source.name == "__init__.py":
                todo.extend(sorted(source.parent.rglob("*.py")))
    return [script, *sorted(path for path in found if path != script)]


def _imported(path: Path) -> tuple[str, ...]:
    """Top-level names of the modules that a file imports."""
    try:
        facts = path.stat()
        return _imported_at(path, (facts.st_ino, facts.st_size, facts.st_mtime_ns))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


@lru_cache(maxsize=256)
def _imported_at(path: Path, _version: tuple[int, ...]) -> tuple[str, ...]:
    """Same names for one version of a file. The trials of a sweep have one script, which is parsed once."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module.partition(".")[0])
    return tuple(names)
