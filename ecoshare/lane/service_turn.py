"""Turn of a service: it is held while the service works on its device, and only then.

::

    requests    ▼        ▼ ▼                       ▼
    thread 1     ▉▉▉▉     ▉▉▉▉                      ▉▉▉▉
    thread 2               ▉▉▉▉
    turn         ════     ═════                     ════      other jobs have the turn in between

A service tells when its answer is due before it waits for the turn, so `core/turns.py` can give it the turn in time.
Threads that work at the same time have one turn. A thread that would join them waits first if another job must have the
turn: else the turn of a busy server would never end.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ecoshare.lane.turn import LaneTurn

_JOINS_WITHIN_S = 0.05
"""Longest wait (s) of a thread for the others to end if another job must have the turn: one of them may wait for it."""


class ServiceTurn:
    """Turn of a service. Any of its threads may use it."""

    def __init__(
        self,
        turn: LaneTurn,
        target_s: float,
        drain: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
        within: Callable[[Callable[[], None]], None] = lambda use: use(),
    ) -> None:
        """The service has no turn yet.

        Args:
            turn: Claim of the service on the turn of its lane. Nothing else may use it.
            target_s: Time (s) within which an answer is due, for callers that name none.
            drain: Waits until the device has finished the work of the service.
            ended: Called at each boundary of the service, while it has the turn: when its work has ended.
            within: Calls a function that takes, offers or leaves the turn.
        """
        self._within = within
        self._turn, self._target_s = turn, target_s
        self._drain, self._ended = drain, ended
        self._changed = threading.Condition()
        self._inside = 0
        self._is_busy = False  # one thread takes, offers or leaves the turn
        self._is_kept = False

    def begin(self, due_s: float | None = None, answer_s: float | None = None) -> None:
        """Wait for the turn.

        Args:
            due_s: Time (s) on the monotonic clock at which the answer is due.
            answer_s: Time (s) that the answer takes at most; by default the longest of late.
        """
        due_s = time.monotonic() + self._target_s if due_s is None else due_s
        with self._changed:
            if self._inside and self._turn.is_due and not self._is_kept:
                self._changed.wait_for(lambda: not self._inside, _JOINS_WITHIN_S)
            self._changed.wait_for(lambda: not self._is_busy)
            if self._inside:
                self._inside += 1
                return
            self._is_busy = True
        is_there = False
        try:
            self._claim(due_s, answer_s)
            self._within(self._turn.take)
            is_there = True
        finally:
            if not is_there:  # a signal handler of the program has raised
                self._turn.leave()
            with self._changed:
                self._inside += is_there
                self._is_busy = False
                self._changed.notify_all()

    def keep(self) -> None:
        """Wait for the turn, and keep it to the end of the job."""
        self._is_kept = True
        self.begin()

    def end(self, next_due_s: float = math.inf, next_answer_s: float | None = None) -> None:
        """Leave the turn if no other thread works, or offer it if the service has more to answer.

        Args:
            next_due_s: Time (s) at which the next answer is due; infinity if no request waits.
            next_answer_s: Time (s) that it takes at most, as in `begin`.
        """
        with self._changed:
            self._inside -= 1
            if self._inside:
                self._changed.notify_all()
                return
            self._is_busy = True
        try:
            self._drain()
            self._turn.count(evaluating=True)
            self._ended()
            if math.isinf(next_due_s):
                self._within(self._turn.leave)
            else:
                self._claim(next_due_s, next_answer_s)
                self._within(lambda: self._turn.offer(lambda: None))
        finally:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _claim(self, due_s: float, answer_s: float | None) -> None:
        self._turn.answer_by(due_s, self._turn.longest_iteration_s if answer_s is None else answer_s)
