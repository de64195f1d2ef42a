"""The terminal of `ecoshare top`: whether there is one, and how it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from ecoshare.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from ecoshare.top.top_app import TopApp

_NO_SCREENS = ("", "dumb", "unknown")
"""Values of TERM for terminals that cannot place text."""


def check_terminal() -> None:
    """Check that there is a terminal to draw on and to read keys from.

    Raises:
        UsageError: There is none.
    """
    hint = "`ecoshare status` prints the jobs of a queue, `ecoshare export RUN` the result of a run"
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        raise UsageError("`ecoshare top` needs a terminal for its input and output", hint)
    if os.environ.get("TERM", "") in _NO_SCREENS:
        raise UsageError(f"`ecoshare top` cannot draw on a terminal of type {os.environ.get('TERM', '')!r}", hint)


def show(app: TopApp) -> None:
    """Show the view until it is quit. The terminal is as before when this returns.

    Raises:
        Interrupted: A signal asked the process to end.
    """
    found: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        # The handlers of the command line raise an error wherever the process is, and Textual would not clean up.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, ended, number)
        await app.run_async()

    def ended(number: int) -> None:
        found.append(number)
        app.exit()

    asyncio.run(run())
    if app.return_code:
        raise SystemExit(app.return_code)
    if found:
        raise Interrupted("interrupted")
