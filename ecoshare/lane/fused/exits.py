"""Functions that scripts register with `atexit`: in a shared process they run at the end of the job."""

from __future__ import annotations

import atexit
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ecoshare.lane.thread_state import Leaving

_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Exits:
    """The `atexit` functions of each job, kept apart."""

    def __init__(self, current_job: Callable[[], object | None]) -> None:
        """Replace `atexit.register` and `atexit.unregister`.

        Args:
            current_job: Returns the job of the calling thread; None for a thread of no job.
        """
        self._current_job = current_job
        self._calls: dict[object, list[_Call]] = {}
        self._register, self._unregister = atexit.register, atexit.unregister
        atexit.register = self._keep  # type: ignore[assignment]
        atexit.unregister = self._drop

    def run(self, job: object) -> None:
        """Call the functions of a job, the last registered first. Print each exception and go on with the next.

        Raises:
            Leaving: If the job must leave the process. The remaining functions are not called.
        """
        calls = self._calls.pop(job, [])
        while calls:
            function, args, arguments = calls.pop()
            try:
                function(*args, **arguments)
            except Leaving:
                raise
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            calls += self._calls.pop(job, [])

    def forget(self, job: object) -> None:
        """Drop the functions of a job that were not called."""
        self._calls.pop(job, None)

    def _keep(self, function: Callable[..., Any], *args: Any, **arguments: Any) -> Callable[..., Any]:
        job = self._current_job()
        if job is None:
            return self._register(function, *args, **arguments)
        self._calls.setdefault(job, []).append((function, args, arguments))
        return function

    def _drop(self, function: Callable[..., Any]) -> None:
        job = self._current_job()
        if job is None:
            self._unregister(function)
        elif job in self._calls:
            self._calls[job] = [call for call in self._calls[job] if call[0] != function]
