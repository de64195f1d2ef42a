"""Whether a job can be forked from the warm server, or needs an interpreter of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import ecoshare
from ecoshare.lane.local_sources import local_modules, local_sources
from ecoshare.lane.messages import LaunchAttempt

_AT_LOAD = (
    r"(?:OMP|MKL|GOMP|KMP|OPENBLAS|LD|CUBLAS|CUDNN|NUMEXPR|MALLOC|PYTORCH|TORCH[A-Z]*)_[A-Z0-9_]+|PYTHON[A-Z0-9_]+"
)
_AT_FIRST_USE = r"TZ|TMPDIR|TEMP|TMP|LANG|LANGUAGE|LC_[A-Z]+|TRITON_[A-Z_]+"
"""Kept by the library that has read them once, as the warm server's have."""

_IN_ENVIRONMENT = re.compile(rf"(?:{_AT_LOAD}|{_AT_FIRST_USE})\Z")
_IN_SOURCE = re.compile(rf"""["']({_AT_LOAD})["']""".encode())
_NOT_AT_LOAD = frozenset({"CUBLAS_WORKSPACE_CONFIG"})
"""Read when a handle is made, not when the library is loaded."""


def why_fresh(launch: LaunchAttempt) -> str | None:
    """The reason for which the job must not be forked from this process, or None where it may.

    A forked job finds torch loaded. That is wrong where it asks for something that is read while torch loads, or
    where a file of its own has the name of a module that is loaded here already.
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
            continue  # starting the script will say so
        if named and named[1].decode() not in _NOT_AT_LOAD:
            return f"{source.name} names {named[1].decode()}, which is read when libraries load"
    return None


def loaded(names: Iterable[str]) -> set[str]:
    """Those of these top-level modules that this process has, and a bare interpreter would not have."""
    return {name for name in names if name in sys.modules and "." not in name} - ecoshare._bare - {"__main__"}


def forget(names: set[str]) -> None:
    """Let the next import of these top-level modules look for them anew."""
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] in names:
            del sys.modules[loaded]
