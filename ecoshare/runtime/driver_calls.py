"""Calls of a device's driver, which may never return, beside the loop of the run.

A call that blocks in the driver cannot be ended. So the calls of each device have a daemon thread of their own: they
take no thread from other devices, and neither the end of the loop nor that of the process waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Work = Callable[[], None]


class DriverCalls:
    """Calls of the driver of one device, with a time limit. While one is without an answer, no other begins."""

    def __init__(self, limit_s: float) -> None:
        """No call so far; `limit_s` is the longest time (s) to wait for an answer."""
        self._limit_s = limit_s
        self._unanswered = 0
        self._queue: SimpleQueue[_Work | None] | None = None

    async def apart(self, call: Callable[[], T]) -> T:
        """Result of a long call, in a thread of its own. If the caller is cancelled, the result is lost."""
        answer, work = _with_answer(call)
        threading.Thread(target=work, name="driver", daemon=True).start()
        return await answer

    async def answer(self, call: Callable[[], T]) -> T | None:
        """Result of a call; None if the driver does not answer it, or has not yet answered an earlier one."""
        if self._unanswered:
            return None
        answer, work = _with_answer(call)
        self._thread().put(work)
        try:
            await asyncio.wait((answer,), timeout=self._limit_s)
        except asyncio.CancelledError:
            answer.cancel()  # else asyncio complains of an error that nothing will ask for
            raise
        if answer.done():
            return answer.result()
        self._unanswered += 1
        answer.add_done_callback(self._answered)
        return None

    def _thread(self) -> SimpleQueue[_Work | None]:
        """Queue of the thread, which ends with this object. A new thread for each call would cost too much."""
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=_serve, args=(self._queue,), name="driver", daemon=True).start()
            weakref.finalize(self, self._queue.put, None)
        return self._queue

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        self._unanswered -= 1
        if not answer.cancelled():
            answer.exception()  # asyncio complains of an error that nothing has asked for


def _with_answer(call: Callable[[], T]) -> tuple[asyncio.Future[T], _Work]:
    """Future of the present loop, and a function for another thread that calls and sets the result."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(error: BaseException | None, result: Any) -> None:
        if not answer.done():
            answer.set_result(result) if error is None else answer.set_exception(error)

    def work() -> None:
        result, fault = None, None
        try:
            result = call()
        except BaseException as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, fault, result)

    return answer, work


def _serve(queue: SimpleQueue[_Work | None]) -> None:
    while (work := queue.get()) is not None:
        work()
