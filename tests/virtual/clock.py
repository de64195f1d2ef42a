"""Virtual time: an event loop that goes to its next timer as soon as nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ecoshare.base.clock import Clock

T = TypeVar("T")

UNIX_S = 1_800_000_000.0
"""Time since 1970 at the begin of virtual time."""

_ANSWER_S = 5.0
"""Real time (s) to wait for something outside of the loop if it has no timer."""


_MOST_S = 3600.0
"""Most virtual time (s) that a run may take."""


class Stuck(Exception):
    """No task can go on: each waits for another, and there is no timer. Or a run goes on and on."""


class VirtualClock(Clock):
    """Time that passes only in its event loop.

    Attributes:
        now_s: Present time (s).
        ahead_s: Time (s) by which the user has set the clock ahead.
    """

    ahead_s = 0.0

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s, self._until_s = now_s, now_s + _MOST_S

    def monotonic_s(self) -> float:
        return self.now_s

    def unix_s(self) -> float:
        return UNIX_S + self.now_s + self.ahead_s

    def since_boot(self) -> tuple[str, float]:
        return "virtual", self.now_s

    def wait(self, time_s: float) -> None:
        """Let time pass."""
        self.now_s += time_s
        if self.now_s > self._until_s:
            raise Stuck("the run goes on and on")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(work)


class _Selector(selectors.DefaultSelector):
    """Selector that lets virtual time pass instead of waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None:
            if not (found := super().select(_ANSWER_S)):
                raise Stuck("no task can go on, and none waits for a time")
            return found
        self._clock.wait(timeout)
        return []


class _Loop(asyncio.SelectorEventLoop):
    """Event loop in virtual time. Work for other threads is done at once, in the thread of the loop."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        super().__init__(_Selector(clock))

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Leave the signals of this process alone."""

    def time(self) -> float:
        return self._clock.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        answer: asyncio.Future[T] = self.create_future()
        try:
            answer.set_result(func(*args))
        except Exception as error:
            answer.set_exception(error)
        return answer
