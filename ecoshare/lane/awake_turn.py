"""Turn of a server with a scheduler of its own: `serving.sleeping_server` holds it from a wake to the next sleep."""

from __future__ import annotations

import time
from collections.abc import Callable

from ecoshare.lane.trace import Kind, Tracer
from ecoshare.lane.turn import LaneTurn


class AwakeTurn:
    """Turn of a server that sleeps without it. See `DeviceTurn`."""

    def __init__(self, turn: LaneTurn, trace: Tracer, drain: Callable[[], None], ended: Callable[[], None]) -> None:
        """The server has no turn yet.

        Args:
            turn: Claim of the service on the turn of its lane. Nothing else may use it.
            trace: Trace in which answers are marked.
            drain: Waits until the device has finished the work of this process.
            ended: Called after each answer.
        """
        self._turn, self._trace, self._drain, self._ended = turn, trace, drain, ended

    @property
    def is_due(self) -> bool:
        """Whether another job must have the turn."""
        return self._turn.is_due

    def take(self, due_s: float, answer_s: float) -> None:
        """Wait for the turn, see `DeviceTurn.take`."""
        self._turn.answer_by(due_s, answer_s)
        self._turn.take()

    def answered(self) -> None:
        """Count an answer."""
        # `LaneTurn.count` would learn its time, and the longest iteration shortens the quanta of the lane: beside
        # answers of seconds, the other jobs would get one iteration a turn.
        slot, now_s = self._turn.answers.slot(), time.monotonic()
        slot.eval_iterations += 1
        if not slot.last_s:
            slot.first_s, slot.waited_at_first_s = now_s, slot.waited_s
        slot.last_s, slot.waited_at_last_s = now_s, slot.waited_s
        self._trace.iteration(Kind.EVAL, now_s)
        self._ended()

    def leave(self) -> None:
        """Give up the turn. The server sleeps."""
        self._drain()
        self._turn.leave()
