"""Calls that a job cannot make in a shared process: a job that makes one is moved out to a process of its own."""

from __future__ import annotations

import _thread
import functools
import locale
import multiprocessing
import multiprocessing.process
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.distributed

_REFUSED: tuple[tuple[Any, str, str], ...] = (
    *((signal, name, "handles signals") for name in ("signal", "setitimer", "alarm", "set_wakeup_fd")),
    *((os, name, "forks its process") for name in ("fork", "forkpty")),
    (multiprocessing.process.BaseProcess, "start", "starts processes (of a DataLoader, say)"),
    (threading.Thread, "start", "starts a thread"),
    (_thread, "start_new_thread", "starts a thread"),
    (torch, "compile", "compiles a model"),
    (torch, "set_num_interop_threads", "sets the threads between operators"),
    (torch.distributed, "init_process_group", "trains together with other processes"),
    (os, "umask", "sets the umask"),
    (os, "closerange", "closes files that it has not opened"),
    (numpy.random, "set_bit_generator", "gives numpy another generator"),
    (os, "_exit", "ends its process at once"),
    *((os, name, "becomes another program") for name in ("execv", "execve")),
    (multiprocessing, "set_start_method", "says how processes start"),
    (time, "tzset", "sets the time zone"),
    (os, "sched_setaffinity", "chooses its processors"),
    (resource, "setrlimit", "sets limits of its process"),
)
"""Owner and name of each function, and what a script does that calls it."""


def refuse(move_out: Callable[[str], None]) -> None:
    """Replace the refused functions: each one first calls `move_out` with what the script does.

    Args:
        move_out: Takes a text such as "starts a thread". It raises in the thread of a job, and returns in any other.
    """
    for owner, name, what in _REFUSED:
        if hasattr(owner, name):
            setattr(owner, name, _refusing(getattr(owner, name), what, move_out))
    locale.setlocale = _unless_only_asked(locale.setlocale, move_out)
    os.close = _but_for_streams(os.close, 0, move_out)
    os.dup2 = _but_for_streams(os.dup2, 1, move_out)


def _refusing(function: Callable[..., Any], what: str, move_out: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def refusing(*args: Any, **arguments: Any) -> Any:
        move_out(what)
        return function(*args, **arguments)

    return refusing


def _but_for_streams(function: Callable[..., Any], place: int, move_out: Callable[[str], None]) -> Callable[..., Any]:
    """Refuse calls of `function` in which the argument at `place` is the descriptor of a standard stream."""

    @functools.wraps(function)
    def refusing(*args: Any, **arguments: Any) -> Any:
        if len(args) > place and args[place] in (0, 1, 2):
            move_out("gives its standard streams away")
        return function(*args, **arguments)

    return refusing


def _unless_only_asked(setlocale: Callable[..., str], move_out: Callable[[str], None]) -> Callable[..., str]:
    @functools.wraps(setlocale)
    def refusing(category: int, wanted: Any = None) -> str:
        if wanted is not None:
            move_out("sets the locale")
        return setlocale(category, wanted)

    return refusing
