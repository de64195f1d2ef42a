"""Ctrl-C, SIGTERM and a closed terminal: delayed while a run starts its server, and handled during the run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def delayed() -> Iterator[None]:
    """Context manager: signals that end the command act at the end of the block only.

    Handlers of these signals raise, and could do so anywhere in the block. Use this in the main thread. Signals that
    are ignored, or that end the process without a handler, are left alone.
    """
    handlers = {number: signal.getsignal(number) for number in _ENDING}
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
def heard(asked_to_stop: Callable[[], None]) -> Iterator[None]:
    """Context manager: each signal that ends the command calls `asked_to_stop`, in the running loop.

    A signal that is ignored already stays ignored: `nohup` relies on that.
    """
    loop = asyncio.get_running_loop()
    numbers = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, asked_to_stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
