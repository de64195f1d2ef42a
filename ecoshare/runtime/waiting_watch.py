"""Ends a run that only measures, if its programs wait and do nothing: such a run would never end.

A server waits for requests, and none come. Other programs wait for input or for a lock. The processor time tells them
from programs that load data or compile before their first iteration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ecoshare.common.clock import loop_s
from ecoshare.core.events import Event, StopRequested
from ecoshare.lane import processes
from ecoshare.runtime.attempts import Attempts

WAITS_S = 30.0
"""Time (s) without an iteration and without work after which programs count as waiting."""

_IDLE = 0.01
"""Processor time / wall time up to which the processes of the programs do no work."""

_LOOK_S = 1.0


class WaitingWatch:
    """Watch over the programs of a run that only measures.

    Attributes:
        is_over: Whether the run was stopped, because its programs wait.
    """

    def __init__(self, attempts: Attempts, tell: Callable[[Callable[..., Event]], None]) -> None:
        """Watch nothing yet.

        Args:
            attempts: Attempts in progress.
            tell: Reports an event to the core.
        """
        self.is_over = False
        self._attempts, self._tell = attempts, tell
        self._since_s, self._done, self._cpu_s = 0.0, -1, 0.0

    async def keep(self) -> None:
        """Look once a second, until the programs wait or until cancelled."""
        while not self.is_over:
            await asyncio.sleep(_LOOK_S)
            names = list(self._attempts.live)
            shown = [self._attempts.slot(name).process()[0] for name in names]
            cpu_s = sum(processes.processor_s(processes.family(pid)) for pid in shown if pid)
            self.look(loop_s(), sum(self._attempts.usage(name).done for name in names), cpu_s)

    def look(self, now_s: float, done: int, cpu_s: float) -> None:
        """Stop the run if the programs have done too little for too long.

        Args:
            now_s: Time (s) now.
            done: Number of iterations of all programs.
            cpu_s: Processor time (s) of all their processes.
        """
        if done != self._done or abs(cpu_s - self._cpu_s) > _IDLE * WAITS_S:
            self._since_s, self._done, self._cpu_s = now_s, done, cpu_s
        elif now_s - self._since_s >= WAITS_S and not self.is_over:
            self.is_over = True
            self._tell(partial(StopRequested, at_once=True))
