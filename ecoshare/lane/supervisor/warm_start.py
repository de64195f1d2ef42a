"""Decides whether a job can be forked from the warm server, or needs an interpreter of its own."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import ecoshare
from ecoshare.lane.messages import LaunchAttempt


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


_AT_LOAD = (
    r"(?:OMP|MKL|GOMP|KMP|OPENBLAS|LD|CUBLAS|CUDNN|NUMEXPR|MALLOC|PYTORCH|TORCH[A-Z]*)_[A-Z0-9_]+|PYTHON[A-Z0-9_]+"
)
_AT_FIRST_USE = r"TZ|TMPDIR|TEMP|TMP|LANG|LANGUAGE|LC_[A-Z]+|TRITON_[A-Z_]+"
"""Variables that a library keeps once it has read them, as the libraries of the warm server have."""

_IN_ENVIRONMENT = re.compile(rf"(?:{_AT_LOAD}|{_AT_FIRST_USE})\Z")
_IN_SOURCE = re.compile(rf"""["']({_AT_LOAD})["']""".encode())
_NOT_AT_LOAD = frozenset({"CUBLAS_WORKSPACE_CONFIG"})
"""Variables that a library reads when it makes a handle, not when it is loaded."""


def why_fresh(launch: LaunchAttempt) -> str | None:
    """Reason why the job must not be forked from this process; None if it may be.

    A forked job finds torch loaded. A fork is wrong if the job sets a variable that is read while torch loads, or if
    one of its files has the name of a module that is already loaded here.
    """
    if launch.called is not None:
        return None
    if launch.python is not None:
        return "python: names another interpreter"
    if launch.fresh:
        return "isolation: fresh"
    for name in sorted(launch.env):
        if _IN_ENVIRONMENT.match(name) and name not in _NOT_AT_LOAD:
            return f"env: {name} is read when libraries load"
    if launch.script is None:
        shadowed = loaded(local_modules(Path(launch.cwd)))
        return f"{min(shadowed)}.py stands before the module of that name" if shadowed else None
    script = Path(launch.script)
    modules = local_modules(script.parent)
    shadowed = loaded(modules)
    if shadowed:
        return f"{min(shadowed)}.py beside the script stands before the module of that name"
    for source in local_sources(script, modules):
        try:
            named = _IN_SOURCE.search(source.read_bytes())
        except OSError:
            continue  # the start of the script reports it
        if named and named[1].decode() not in _NOT_AT_LOAD:
            return f"{source.name} names {named[1].decode()}, which is read when libraries load"
    return None


def loaded(names: Iterable[str]) -> set[str]:
    """Top-level modules among `names` that this process has, and a bare interpreter would not have."""
    return {name for name in names if name in sys.modules and "." not in name} - ecoshare._bare - {"__main__"}


def forget(names: set[str]) -> None:
    """Make the next import of these top-level modules search for them again."""
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] in names:
            del sys.modules[loaded]
