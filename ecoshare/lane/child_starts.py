"""Sees in the process of a job, before it happens, the start of child processes that will use the device.

::

    multiprocessing, by spawn or forkserver   each process, but no worker of a `DataLoader` and no server of a manager
    subprocess                                a launcher, and a rank: its environment gives it a number

A child that multiprocessing forks is not seen here. Such a child can use the device only if its parent does not, and
runs the calls that wait for the first use of CUDA in its parent's place. Other programs show only on the device itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from ecoshare.lane.after_import import after_import
from ecoshare.lane.launchers import launcher_in, rank_in

_HELPERS = ("torch.utils.data.", "torchdata.", "multiprocessing.managers")
"""Beginnings of the names of modules with functions that run in child processes and leave the device alone."""


def watch(before_start: Callable[[str], None]) -> None:
    """Watch the starts of child processes from now on.

    Args:
        before_start: Called before the start of a child that will use the device, with the reason in words.
    """
    after_import("multiprocessing.process", functools.partial(_wrap_multiprocessing, before_start))
    after_import("subprocess", functools.partial(_wrap_subprocess, before_start))


def _wrap_multiprocessing(before_start: Callable[[str], None]) -> None:
    from multiprocessing.process import BaseProcess

    start = BaseProcess.start

    @functools.wraps(start)
    def start_watched(process: BaseProcess) -> None:
        if (method := _start_method(process)) in ("spawn", "forkserver") and not _helps(process):
            before_start(f"it starts processes with multiprocessing ({method})")
        start(process)

    BaseProcess.start = start_watched  # type: ignore[method-assign, assignment]


def _start_method(process: Any) -> str:
    """How `multiprocessing` starts a process: by its class, else as the script or the system has chosen for all."""
    own = getattr(process, "_start_method", None)
    if own is not None:
        return str(own)
    import multiprocessing

    return multiprocessing.get_start_method()


def _helps(process: Any) -> bool:
    """Whether a process of `multiprocessing` loads data or keeps values for other processes."""
    module = getattr(getattr(process, "_target", None), "__module__", None) or ""
    return str(module).startswith(_HELPERS)


def _wrap_subprocess(before_start: Callable[[str], None]) -> None:
    from subprocess import Popen

    start = Popen.__init__

    @functools.wraps(start)
    def start_watched(process: Any, args: Any, *more: Any, **options: Any) -> None:
        if launcher := launcher_in(_words(args)):
            before_start(f"it starts {launcher}")
        elif variable := rank_in(options.get("env")):
            before_start(f"it starts processes with {variable} in their environment")
        start(process, args, *more, **options)

    Popen.__init__ = start_watched  # type: ignore[method-assign, assignment]


def _words(args: Any) -> str | Sequence[str]:
    """Arguments of `Popen` as text; empty if `Popen` will refuse them."""
    try:
        if isinstance(args, str | bytes | os.PathLike):
            return os.fsdecode(args)
        return [os.fsdecode(word) for word in args] if isinstance(args, Sequence) else ""
    except TypeError:
        return ""
