"""Calls of a device's driver with a time limit, for code without an event loop: `DriverCalls` needs one.

A call that blocks in the driver cannot be ended. It goes on in a daemon thread, which keeps no process from its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SETS_WITHIN_S = 20.0
"""Longest time (s) to open, set or restore a device.

It is long: without persistence mode a driver first initialises its GPUs, and a daemon has time limits of its own.
"""


class NoAnswer(Exception):
    """The driver has not answered within the time limit. The call goes on."""


def in_time(call: Callable[[], T], limit_s: float, late: Callable[[T], object] = lambda _result: None) -> T:
    """Result of a call of the driver, made in a daemon thread. An error of the call is raised here.

    Args:
        call: Calls the driver.
        limit_s: Longest time (s) to wait for the result.
        late: Undoes what the call has done, if its result comes after the limit. It is called in the daemon thread.

    Raises:
        NoAnswer: There is no result within the limit.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    over, mutex = threading.Event(), threading.Lock()
    gave_up = False

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            errors.append(error)
            over.set()
            return
        with mutex:
            is_late = gave_up
            if not is_late:
                results.append(result)
        over.set()
        if is_late:
            late(result)

    threading.Thread(target=work, name="driver call", daemon=True).start()
    try:
        over.wait(limit_s)
    finally:  # after an interrupt, too: nothing takes the result any more
        with mutex:
            gave_up = not results
    if errors:
        raise errors[0]
    if not results:
        raise NoAnswer(f"no answer within {limit_s:g} s")
    return results[0]
