"""Calls of a device's driver, which may never return, beside the loop of the run.

A call that blocks in the driver cannot be ended. So each has a daemon thread of its own: it takes no thread from other
devices, and neither the end of the loop nor that of the process waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T]) -> T:
    """Result of a call in a daemon thread. If the caller is cancelled, the thread goes on, and its result is lost."""
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

    threading.Thread(target=work, name="driver", daemon=True).start()
    return await answer


class DriverCalls:
    """Calls of the driver of one device, with a time limit. While one is without an answer, no other begins."""

    def __init__(self, limit_s: float) -> None:
        """No call so far; `limit_s` is the longest time (s) to wait for an answer."""
        self._limit_s = limit_s
        self._unanswered = 0

    async def answer(self, call: Callable[[], T]) -> T | None:
        """Result of a call; None if the driver does not answer it, or has not yet answered an earlier one."""
        if self._unanswered:
            return None
        work = asyncio.ensure_future(in_own_thread(call))
        await asyncio.wait((work,), timeout=self._limit_s)
        if work.done():
            return work.result()
        self._unanswered += 1
        work.add_done_callback(self._answered)
        return None

    def _answered(self, work: asyncio.Future[Any]) -> None:
        self._unanswered -= 1
        if not work.cancelled():
            work.exception()  # asyncio complains of an error that nothing has asked for
