"""Ctrl-C, SIGTERM and a closed terminal, while a run goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heard(asked_to_stop: Callable[[], None]) -> Iterator[None]:
    """Call `asked_to_stop` at each of them, in the running loop; what is ignored already stays so: `nohup` means it."""
    loop = asyncio.get_running_loop()
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in numbers:
        loop.add_signal_handler(number, asked_to_stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
