"""Entry point of `ecoshare`: runs a command, and turns errors into messages and exit codes.

Results go to stdout; progress and messages go to stderr. `ecoshare.errors` defines the exit codes.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from typing import NoReturn

import typer
from rich.console import Console

from ecoshare.cli.app import app, narrow
from ecoshare.cli.classes import Mistake, told
from ecoshare.errors import EcoshareError, Interrupted, InvalidJobFile, UnfitEnvironment, UsageError
from ecoshare.lane.interpreter import wind_up
from ecoshare.lane.processes import name_thread

_REQUESTS_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_AGAIN_S = 0.02
"""Time (s) after which a signal is sent again that was lost."""


def main() -> NoReturn:
    """Run the command line and end the process."""
    status: object = None
    _open_closed_streams()
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        name_thread(sys.argv[1])
        narrow(sys.argv[1])
    try:
        try:
            _main()
        finally:
            _ignore_signals()
    except SystemExit as end:
        status = end.code
    except Interrupted:  # a signal came while an error was told: it is the end, too
        status = Interrupted.exit_code
    _leave(status if isinstance(status, int) else int(status is not None))


def _open_closed_streams() -> None:
    """Open closed standard streams (`ecoshare run jobs.yaml >&-`) on /dev/null: no other file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while (descriptor := os.open(os.devnull, os.O_RDWR)) < number:
                pass  # this number was lower, and was free, too
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r"))


def _ignore_signals() -> None:
    """Let no request to end interrupt the end."""
    for number in _REQUESTS_TO_END:
        signal.signal(number, signal.SIG_IGN)


def _leave(code: int) -> NoReturn:
    """End the process at once: all is written, and the destruction of modules would take 0.1 s, or 0.3 s with torch."""
    if sys.getprofile() is not None or sys.gettrace() is not None:
        sys.exit(code)  # a profiler or tracer writes its findings at exit
    _ignore_signals()
    wind_up()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the disk is full, or the stream is closed
            stream.flush()
    os._exit(code)


def _main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that the locale lacks is no reason to fail
    sys.unraisablehook = _send_again
    for number in _REQUESTS_TO_END:
        # `nohup` has signals ignored on purpose; SIGINT is ignored by whatever a script starts with `&`.
        if number == signal.SIGINT or signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupted)
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            sys.stdout.flush()  # flushed here, where a full disk can still be reported
        if code:
            sys.exit(code)
    except Mistake as mistake:
        if type(mistake).__name__ == "NoArgsIsHelpError":  # the help is what it prints
            mistake.show()
        else:
            error = told(mistake)
            _tell([f"error: {error}"], error.hint)
        sys.exit(UsageError.exit_code)
    except typer.Abort:
        sys.exit(Interrupted.exit_code)
    except EcoshareError as error:
        # A message about a job file begins with the mistake's place, so that editors can jump to it.
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
        from ecoshare.reporting.figures import say

        console = Console(stderr=True, highlight=False)
        for line in lines:
            say(console, line, "red" if console.is_terminal else "")
        if hint:
            say(console, f"hint: {hint}")
    except OSError:  # no more files can be opened, or stderr cannot be written
        _tell_plainly(lines)


def _tell_plainly(lines: list[str]) -> None:
    with contextlib.suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr, flush=True)


class _Requested(Interrupted):
    """Raised by the handler of a signal, wherever the program is."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted")
        self.number = number


def _interrupted(number: int, _frame: object) -> None:
    """Handle Ctrl-C and requests to terminate while no run is active; a run has handlers of its own."""
    raise _Requested(number)


def _send_again(ignored: sys.UnraisableHookArgs) -> None:
    """Send a signal again that came in a place where Python drops exceptions, such as a callback of its import lock."""
    if not isinstance(ignored.exc_value, _Requested):
        sys.__unraisablehook__(ignored)
        return
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), ignored.exc_value.number))
    again.daemon = True
    again.start()
