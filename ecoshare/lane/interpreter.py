"""Beginning and end of an interpreter: programs of ecoshare begin in a new one, and a forked job ends as one would.

An interpreter that ends destroys every module. In a forked process that touches, and so copies, all the memory shared
with the warm server: 0.23 s for a job of 0.04 s. `leave` waits for the script's threads, runs its `atexit` handlers,
and flushes, in the interpreter's own order. It skips the rest only if the script has left nothing that acts when it is
destroyed: an open file, a `__del__`, a suspended generator, an extension module.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping, MutableMapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from ecoshare.errors import exit_code

ADDED_ENVIRONMENT = "ECOSHARE_ADDED"
"""Variable that lists the variables that the controller added to the server's environment, joined by commas.

Libraries read those variables while they load. A forked job does not see them; a fresh interpreter needs them.
"""

_BOOT = """
import sys
bare = frozenset(sys.modules)
if sys.path and sys.path[0] == "": del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("ecoshare", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["ecoshare"] = module = module_from_spec(spec)
spec.loader.exec_module(module)
module._bare = bare
from importlib import import_module
import_module(sys.argv[2]).main(sys.argv[3:])
"""


def program_command(module: str, *args: str, python: str = sys.executable) -> list[str]:
    """Command line that runs `main(args)` of one of ecoshare's modules.

    The interpreter of a job may be another than ours, without ecoshare on its path, and nothing of ours must be put on
    that path. So ecoshare is loaded from its own folder.
    """
    return [python, "-c", _BOOT, str(Path(__file__).parents[1]), module, *args]


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


_THREAD = "pt_gloo_runloop"
"""Name of the threads that carry out collectives, as the kernel shows it."""

_DROP_S = 0.05
"""Time (s) that a thread is given to drop the last tensors. It takes less than a millisecond of a processor."""


def let_threads_drop() -> None:
    """Wait a moment if this process has threads of gloo.

    A thread of gloo drops the tensors of the last collective when the collective is over for the script already. If the
    interpreter ends at this moment, PyTorch aborts the process (pull request 179291 of PyTorch, seen with 2.13). A rank
    would end with SIGABRT after its work is done.
    """
    for thread in Path("/proc/self/task").glob("*/comm"):
        try:
            is_gloo = thread.read_text().strip() == _THREAD
        except OSError:  # it has ended meanwhile
            continue
        if is_gloo:
            time.sleep(_DROP_S)
            return


def change(environment: MutableMapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Set variables in place; None removes one."""
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
