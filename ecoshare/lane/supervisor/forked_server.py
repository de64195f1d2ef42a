"""The lanes' server for jobs that are calls of a function: forked from the process that has the function.

::

    user's process
      main thread     ═════════╗ waits                   ╔═══
      a new thread             ╚══fork═══ends            ║
                                   │
    server        its only thread  └── `serve` ──fork──► job: function(`called` of its `LaunchAttempt`)

Nothing is pickled: a job finds the objects that the function refers to as they were when the server was forked.

A thread that has done nothing before makes the fork. libgomp keeps a team of threads for each thread that has run a
parallel region. A fork copies that thread's record of its team, but not the team, so the next parallel region would
wait for ever. The new thread has no team. It is the main thread in the server and in every job, with an empty stack.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import ecoshare
from ecoshare.lane import interpreter, processes, runner
from ecoshare.lane.files import make_folder, open_to_append
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.supervisor.server import JobSupervisor


def greeting(log: Path, environment: dict[str, str], shown: str) -> bytes:
    """Line that a server waits for before it begins.

    Args:
        log: File for the server's own stderr.
        environment: Variables to add to the server's environment.
        shown: Name of the one that other processes must see in /proc.
    """
    return json.dumps([str(log), environment, shown]).encode() + b"\n"


def serve(channel: socket.socket, function: Callable[[str], None]) -> NoReturn:
    """Serve the controller at the other end of `channel`, in a process just forked; in a child of it, run a job."""
    try:
        _begin_anew()
        ecoshare._function = function
        line = channel.makefile("rb", buffering=0).readline()
        if not line:
            os._exit(0)
        log, environment, shown = json.loads(line)
        os.environ.update(environment)
        processes.mark(shown, environment[shown])
        processes.name_thread("server")  # the command line is that of the user's process
        _redirect(Path(log))
        supervisor = JobSupervisor(channel, is_forked=True)
        supervisor.warm_up()
        launch = supervisor.serve()
        if launch is None:
            os._exit(0)
        assert isinstance(launch, LaunchAttempt), "calls are not fused"
        try:
            runner.run(launch, forked=True)
        except SystemExit as end:
            interpreter.leave_at_once(end.code)
        interpreter.leave_at_once(None)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _begin_anew() -> None:
    """Cut the ties to the parent: nothing that its threads, handlers and children wait for may happen here."""
    gc.freeze()  # garbage here is the parent's garbage, too: its collection might close or delete something
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.excepthook = sys.__excepthook__
    atexit._clear()
    if "multiprocessing.util" in sys.modules:
        _forget_children()


def _forget_children() -> None:
    """Forget the parent's children, which this process must not wait for or end. multiprocessing does the same."""
    from multiprocessing import process, util

    process._children.clear()  # type: ignore[attr-defined]
    util._finalizer_registry.clear()  # type: ignore[attr-defined]
    util._run_after_forkers()  # type: ignore[attr-defined]
    atexit.register(util._exit_function)  # type: ignore[attr-defined]


def _redirect(log: Path) -> None:
    """Put new streams on the standard descriptors, whatever streams the parent has set."""
    nothing = os.open(os.devnull, os.O_RDWR)
    make_folder(log.parent)
    said = open_to_append(log)
    for target, handle in ((0, nothing), (1, nothing), (2, said)):
        os.dup2(handle, target)
    os.close(nothing)
    os.close(said)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
