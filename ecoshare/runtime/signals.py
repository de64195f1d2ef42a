"""Ctrl-C, SIGTERM and a closed terminal: delayed while a run starts its server, and handled during the run."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask for the end of a run."""

_ONE_REQUEST_S = 10.0
"""Time (s) within which SIGTERM, sent twice, is one request. Slurm sends it to a script that passes it on, and to the
process behind the script, too. Ctrl-C comes from a user: the second one means now.
"""


class StopSignals(Protocol):
    """Handling of the signals that ask for the end of a run, in the process that drives it."""

    def delayed(self) -> AbstractContextManager[None]:
        """Context manager: signals act at the end of the block only."""
        ...

    def heard(self, asked_to_stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Context manager: each signal calls `asked_to_stop`, in the running loop."""
        ...

    def over(self) -> None:
        """Called when all jobs have ended, before the result is written."""
        ...


class CommandSignals:
    """Signals of a process that exists for one run, as a command does. Use this in the main thread."""

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """See `StopSignals`.

        Handlers of these signals raise, and could do so anywhere in the block. Signals that are ignored, or that end
        the process without a handler, are left alone.
        """
        handlers = {number: signal.getsignal(number) for number in ENDING}
        arrived: list[int] = []
        replaced = {number: handler for number, handler in handlers.items() if callable(handler)}
        for number in replaced:
            signal.signal(number, lambda number, _frame: arrived.append(number))
        try:
            yield
        finally:
            for number, handler in replaced.items():
                signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])

    @contextmanager
    def heard(self, asked_to_stop: Callable[[], None]) -> Iterator[None]:
        """See `StopSignals`. A signal that is ignored already stays ignored: `nohup` relies on that."""
        loop = asyncio.get_running_loop()
        handlers = {number: signal.getsignal(number) for number in ENDING}
        heard = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
        asked_s: dict[int, float] = {}

        def hear(number: int) -> None:
            before_s, asked_s[number] = asked_s.get(number, -math.inf), loop.time()
            if number == signal.SIGINT or loop.time() - before_s > _ONE_REQUEST_S:
                asked_to_stop()

        for number in heard:
            loop.add_signal_handler(number, hear, number)
        try:
            yield
        finally:
            for number, handler in heard.items():
                loop.remove_signal_handler(number)  # this leaves the kernel's default, which ends the process
                if handler is not None:  # None: it was not set from Python, and cannot be
                    signal.signal(number, handler)

    def over(self) -> None:
        """Ignore Ctrl-C from now on. The rest takes no time, and a late Ctrl-C must not cost the result."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
