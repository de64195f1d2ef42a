"""Decides whether a job can be forked from the warm server, or needs an interpreter of its own."""

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
