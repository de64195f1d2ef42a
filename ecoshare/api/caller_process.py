"""The caller's process while it drives a run: its signals, its threads and its event loop stay what they were."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ecoshare.runtime.signals import Interrupts

if TYPE_CHECKING:
    from ecoshare.runtime.signals import StopSignals

_Value = TypeVar("_Value")

_LOOK_S = 0.1
"""Longest time (s) until a handler of a signal runs beside a loop."""


def drive(signals: StopSignals | None, start: Callable[[StopSignals], _Value]) -> _Value:
    """Call `start`, which drives a run in this process until all its jobs have ended.

    Args:
        signals: Handling of Ctrl-C, SIGTERM and a closed terminal. With None, such a signal stops the run, and is
            raised again at the end, for the handler that the caller had set. A second one kills the jobs. Outside
            the main thread signals have no effect on the run.
        start: Starts the run; it takes the handling of signals.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C, and Python's own handler is set.
    """
    if signals is not None:
        return _outside_a_loop(partial(start, signals))
    passed = CallerSignals()
    try:
        with passed.interrupts:
            return _outside_a_loop(partial(start, passed))
    finally:
        passed.interrupts.pass_on()


class CallerSignals:
    """Signals of a process that goes on after the run. They ask the run to stop, and raise nothing meanwhile.

    Attributes:
        interrupts: Context manager that replaces the handlers.
    """

    def __init__(self) -> None:
        """Begin without signals."""
        self.interrupts = Interrupts(self._stop)
        self._count = 0
        self._ask: Callable[[], object] | None = None
        self._lock = threading.RLock()  # a handler may run while its own thread holds the lock

    def delayed(self) -> AbstractContextManager[None]:
        """See `StopSignals`. The handlers raise nothing, so there is nothing to delay."""
        return nullcontext()

    @contextmanager
    def heard(self, asked_to_stop: Callable[[], None]) -> Iterator[None]:
        """See `StopSignals`. Signals from before the loop count, too."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._ask = partial(loop.call_soon_threadsafe, asked_to_stop)
            for _ in range(self._count):
                asked_to_stop()
        try:
            yield
        finally:
            with self._lock:
                self._ask = None

    def over(self) -> None:
        """See `StopSignals`. Later signals wait for the result."""

    def _stop(self) -> None:
        with self._lock:
            self._count += 1
            if self._ask is not None:
                self._ask()


def _outside_a_loop(start: Callable[[], _Value]) -> _Value:
    """Call a function that runs an event loop, in a thread of its own if one runs in this thread, as in a notebook.

    Python runs handlers of signals in the main thread only, and a wait without a limit may sleep through a signal that
    the kernel gave to another thread. So this thread wakes at short intervals.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return start()
    with ThreadPoolExecutor(1, "ecoshare") as pool:
        running = pool.submit(start)
        while not wait([running], _LOOK_S).done:
            pass
        return running.result()
