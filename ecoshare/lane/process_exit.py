"""Ends a forked job's process as the interpreter would, but skips the destruction of modules if that has no effect.

An interpreter that ends destroys every module. In a forked process that touches, and so copies, all the memory shared
with the warm server: 0.23 s for a job of 0.04 s. This module waits for the script's threads, runs its `atexit`
handlers, and flushes, in the interpreter's own order. It skips the rest only if the script has left nothing that acts
when it is destroyed: an open file, a `__del__`, a suspended generator, an extension module.
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

from ecoshare.errors import exit_code

_LIBC = ctypes.CDLL(None)


def leave(status: object, last: str) -> None:
    """End this process with the status of a `SystemExit`. Return if the interpreter must end it.

    Args:
        status: The exception's `code`: a number, None, or an object to print.
        last: Module that was loaded last before the script began. Objects from then must be frozen (`gc.freeze`).
    """
    wind_up()
    if _has_extension_after(last):
        return
    if any(_has_finaliser(kind) for kind in {type(each) for each in gc.get_objects()}):
        return
    try:
        sys.stdout.flush()
        code = exit_code(status)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # a full disk, or the script has closed the stream or set it to None
        return
    _LIBC.fflush(None)  # output of C libraries
    os._exit(code)


def leave_at_once(status: object) -> NoReturn:
    """End this process like `leave`, whatever would be destroyed.

    This is for a process that is a part of another one, like the processes of multiprocessing.
    """
    try:
        wind_up()
        code = exit_code(status)
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        code = 1
    _LIBC.fflush(None)
    os._exit(code)


def keep_operators() -> None:
    """Leave torch's operators registered when a process ends: those of the 170 libraries that are loaded by now.

    Removing them from torch's tables would copy 30 MB of the memory that a forked process shares: a third of the cost
    of a job of a few iterations. The operators do not outlive the process anyway.
    """
    import torch.library

    # Both names are private to their modules: if one is missing, nothing changes.
    take_out = getattr(torch.library, "_del_library", None)
    for finaliser, end in list(getattr(weakref.finalize, "_registry", {}).items()):
        if end.func is take_out:
            finaliser.atexit = False


def wind_up() -> None:
    """Do the first steps of an interpreter's end: wait for the threads, and call the `atexit` functions."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _has_extension_after(last: str) -> bool:
    """Whether an extension module was loaded after the module `last`; True if that cannot be said.

    New names stand at the end. A set of all names would touch, and so copy, the memory of thousands of them: 7 ms.
    """
    try:
        for name in reversed(sys.modules):
            if name == last:
                return False
            if _is_extension(sys.modules[name]):
                return True
    except (RuntimeError, KeyError):  # a daemon thread imports a module, or removes one
        return True
    return True


def _is_extension(module: object) -> bool:
    # Do not use getattr: a module may make up its attributes on request.
    path = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return isinstance(path, str) and path.endswith(tuple(EXTENSION_SUFFIXES))


def _has_finaliser(kind: type) -> bool:
    return any("__del__" in vars(base) for base in kind.__mro__)
