"""What `ecoshare` calls: runs a command, and turns errors into words and exit codes.

Results go to stdout, progress and words to stderr. Exit codes are those of `ecoshare.errors`.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from typing import NoReturn

from rich.console import Console

from ecoshare.cli.app import app
from ecoshare.errors import EcoshareError, Interrupted, InvalidJobFile, UnfitEnvironment
from ecoshare.lane.process_exit import wind_up


def main() -> NoReturn:
    """Run the command line, and end the process; what `ecoshare` calls."""
    status: object = None
    _open_closed_streams()
    try:
        _main()
    except SystemExit as end:
        status = end.code
    _leave(status if isinstance(status, int) else int(status is not None))


def _open_closed_streams() -> None:
    """A standard stream that was closed (`ecoshare run jobs.yaml >&-`) leads nowhere; no other file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while (descriptor := os.open(os.devnull, os.O_RDWR)) < number:
                pass  # a lower number was free, too
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r"))


def _leave(code: int) -> NoReturn:
    """End the process. All is written by now, and to take every module apart would take 0.1 s, with torch 0.3."""
    if sys.getprofile() is not None or sys.gettrace() is not None:
        sys.exit(code)  # who watches this program writes down at its very end what was seen
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wind_up()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # no room, or closed
            stream.flush()
    os._exit(code)


def _main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a locale that lacks a letter is no reason to fail
    signal.signal(signal.SIGINT, _interrupted)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else `nohup` means it
            signal.signal(number, _interrupted)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where it can be told that there is no room
    except EcoshareError as error:
        # Mistakes of a job file begin with their place, so that editors can jump to it.
        prefix = "" if isinstance(error, InvalidJobFile) else "error: "
        _tell([f"{prefix}{line}" for line in str(error).splitlines()], error.hint)
        sys.exit(error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _tell_plainly([f"error: {place}{error.strerror or error}"])
        sys.exit(UnfitEnvironment.exit_code)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != "can't start new thread":
            raise
        _tell_plainly(["error: the system gives ecoshare no more memory or threads", "hint: `ulimit -a` shows limits"])
        sys.exit(UnfitEnvironment.exit_code)


def _tell(lines: list[str], hint: str) -> None:
    try:
        from ecoshare.reporting.prose import say

        console = Console(stderr=True, highlight=False)
        for line in lines:
            say(console, line, "red" if console.is_terminal else "")
        if hint:
            say(console, f"hint: {hint}")
    except OSError:  # no more files may be open, or nothing can be written
        _tell_plainly(lines)


def _tell_plainly(lines: list[str]) -> None:
    with contextlib.suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr, flush=True)


def _interrupted(_number: int, _frame: object) -> None:
    """Ctrl-C, or an end that somebody asks for, while no run is going on; a run has handlers of its own."""
    raise Interrupted("interrupted")
