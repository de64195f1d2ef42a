"""Ctrl-C, SIGTERM and a closed terminal: delayed while a run starts its server, and handled during the run."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Protocol

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


class Interrupts:
    """Context manager that replaces the handlers of these signals; without effect outside the main thread.

    Attributes:
        number: Number of the first signal received; None before.
    """

    def __init__(self, stop: Callable[[], None], raise_from: int | None = None) -> None:
        """Call `stop` at each signal.

        Args:
            stop: Asks for the end of the run. It is called in the main thread, between any two instructions.
            raise_from: Number of the signal from which on KeyboardInterrupt is raised, too; None for never.
        """
        self.number: int | None = None
        self._stop, self._raise_from = stop, raise_from
        self._count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pass_on(self) -> None:
        """Raise a received signal again, for the handler that was set before.

        Raises:
            KeyboardInterrupt: The signal was Ctrl-C, and Python's default handler is set.
        """
        if self.number is not None:
            signal.raise_signal(self.number)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        self._count += 1
        self._stop()
        if self._raise_from is not None and self._count >= self._raise_from:
            raise KeyboardInterrupt
