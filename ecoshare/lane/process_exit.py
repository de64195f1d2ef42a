"""Ends a forked job's process as the interpreter would, without taking torch apart first, where nobody can tell.

An interpreter that ends destroys every module. In a forked process that touches, and so copies, all the memory it
shares with the warm server: 0.23 s for a job of 0.04 s. Here it waits for the script's threads, runs its `atexit`
handlers, and flushes, in the interpreter's own order. The rest is skipped only where the script has left nothing that
its destruction could make do something: an open file, a `__del__`, a suspended generator, an extension module.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
import weakref
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType
from typing import NoReturn

_C_LONG = 1 << 63
"""Larger numbers do not fit into what the interpreter takes them as."""


def leave(status: object, before: frozenset[str]) -> None:
    """End this process with what a `SystemExit` carried; return where the interpreter must end it.

    Args:
        status: The exception's `code`: a number, None, or something to print.
        before: Modules that were loaded before the script began. What existed then must be frozen (`gc.freeze`).
    """
    wind_up()
    if any(_is_extension(sys.modules[name]) for name in sys.modules.keys() - before):
        return
    if any(_has_finaliser(kind) for kind in {type(each) for each in gc.get_objects()}):
        return
    try:
        sys.stdout.flush()
        code = exit_code(status)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # a full disk; closed, or set to None, by the script
        return
    ctypes.CDLL(None).fflush(None)  # what libraries have printed
    os._exit(code)


def leave_at_once(status: object) -> NoReturn:
    """As `leave`, whatever would be destroyed: for a process that is a part of another, as those of multiprocessing."""
    try:
        wind_up()
        code = exit_code(status)
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        code = 1
    ctypes.CDLL(None).fflush(None)
    os._exit(code)


def keep_operators() -> None:
    """Leave torch's operators registered when a process ends: those of 170 libraries, which it has loaded by now.

    To take them out of torch's tables copies 30 MB of what a forked process shares: a third of all that a job of a few
    iterations costs. Nothing of them outlives the process.
    """
    import torch.library

    # Neither name is promised: without them all is as it was.
    take_out = getattr(torch.library, "_del_library", None)
    for finaliser, end in list(getattr(weakref.finalize, "_registry", {}).items()):
        if end.func is take_out:
            finaliser.atexit = False


def wind_up() -> None:
    """What an interpreter does first at its end: wait for the threads, and call what is registered for then."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _is_extension(module: object) -> bool:
    # Not by getattr: a module may make its attributes up when it is asked for them.
    path = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return isinstance(path, str) and path.endswith(tuple(EXTENSION_SUFFIXES))


def _has_finaliser(kind: type) -> bool:
    return any("__del__" in vars(base) for base in kind.__mro__)


def exit_code(status: object) -> int:
    """What the interpreter makes of what a `SystemExit` carries; what is no number is printed."""
    if status is None:
        return 0
    if isinstance(status, int):
        return status & 0xFF if -_C_LONG <= status < _C_LONG else 255
    print(status, file=sys.stderr)
    return 1
