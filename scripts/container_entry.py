#!/usr/bin/env python3
"""First process of a container: runs a command, passes signals on, and at last runs `ecoshare restore`.

::

    container-entry ecoshare up --resume
        SIGTERM, SIGINT, SIGHUP ──► the command
        orphans of jobs         ──► reaped when they end; else each stays a zombie until the container ends
        end of the command      ──► end of the guard ──► `ecoshare restore` ──► exit code of the command

The kernel kills all processes of a container with the first one. So the controller of a run must be another: if only
the controller is killed, its guard still ends the jobs and restores clocks and power. This file uses the standard
library only, and works the same below another init (`docker run --init`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the command gets."""

_GUARD_WITHIN_S = 20.0
"""Longest time (s) to wait for the guards of runs that were killed."""

_LOOK_S = 0.05
_GUARD = b"ecoshare: guard\0", b"\0ecoshare.runtime.nodes.guard\0"
"""Command line of a guard (`ecoshare.lane.processes.show_as`), and the part of it by which it is known before."""

_NOTHING = "nothing to restore"
_PR_SET_CHILD_SUBREAPER = 36


def main(words: list[str]) -> int:
    """Run a command; returns its exit code as a shell gives it: 128 + N after signal N.

    Args:
        words: The command.
    """
    if not words:
        print("usage: container-entry COMMAND [ARGUMENT]...", file=sys.stderr)
        return 2
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans come here also where process 1 is another
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until the command can take them
    child = os.fork()
    if child == 0:
        _become(words)

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = _reap_until(child)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # nothing must cut the rest short
    _await_guards()
    _restore()
    return code


def _become(words: list[str]) -> NoReturn:
    """Execute the command in a process group of its own, which gets Ctrl-C from a terminal directly."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # there is no terminal
        os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"error: {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _reap_until(child: int) -> int:
    """Reap every process that ends, up to the end of `child`; returns its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _await_guards() -> None:
    """Wait until the guards of runs have ended. There are some only if the controller of a run was killed."""
    until_s = time.monotonic() + _GUARD_WITHIN_S
    while any(_is_guard(pid) for pid in _children()) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _is_guard(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return line == _GUARD[0] or _GUARD[1] in line


def _restore() -> None:
    """Run `ecoshare restore`. Messages go to stderr, and there is none if no run has left anything."""
    try:
        done = subprocess.run(["ecoshare", "restore"], capture_output=True, text=True, check=False)
    except OSError as error:
        print(f"error: ecoshare restore: {error.strerror}", file=sys.stderr)
        return
    if done.returncode or not done.stdout.startswith(_NOTHING):
        print(done.stdout + done.stderr, end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
