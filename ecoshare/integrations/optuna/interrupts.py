"""Ctrl-C, SIGTERM and a closed terminal while a run goes on in somebody else's process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_OUT_OF_PATIENCE = 3


class Interrupts:
    """In the main thread, hears these signals in place of whoever did before; elsewhere none of them.

    Attributes:
        number: The first that came; None before.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        """Call `stop` at each of them; from the third on raise KeyboardInterrupt, too."""
        self.number: int | None = None
        self._stop = stop
        self._count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pass_on(self) -> None:
        """Where one came, raise it again for whoever heard it before.

        Raises:
            KeyboardInterrupt: It was Ctrl-C, and nobody else is there to hear it.
        """
        if self.number is not None:
            signal.raise_signal(self.number)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        self._count += 1
        self._stop()
        if self._count >= _OUT_OF_PATIENCE:
            raise KeyboardInterrupt
