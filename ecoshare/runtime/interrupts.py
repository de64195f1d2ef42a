"""Handle Ctrl-C, SIGTERM and a closed terminal during a run inside the user's process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ecoshare.runtime.signals import ENDING


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
