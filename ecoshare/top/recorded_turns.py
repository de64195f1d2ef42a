"""Turns and iterations of a recorded run at any moment, from the traces of its jobs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecoshare.lane import trace
from ecoshare.lane.trace import Kind
from ecoshare.record.run_folder import RunFolder

if TYPE_CHECKING:
    import numpy as np

_MOST_TRACES = 64
"""Most traces in memory. One has 9 MB at most."""


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """Trace of an attempt.

    Attributes:
        turns_s: Times (s) at which the turn began or ended, of shape (n,).
        begins: Whether it began, of shape (n,).
        iterations_s: Times (s) at which an iteration ended, of shape (m,).
        trained: Number of training iterations up to each of these, of shape (m,).
    """

    turns_s: np.ndarray
    begins: np.ndarray
    iterations_s: np.ndarray
    trained: np.ndarray

    def holds(self, at_s: float) -> bool:
        """Whether the attempt had the turn at this time (s)."""
        place = int(self.turns_s.searchsorted(at_s, "right")) - 1
        return place >= 0 and bool(self.begins[place])

    def done(self, at_s: float) -> int:
        """Number of marked iterations of both kinds up to this time (s)."""
        return int(self.iterations_s.searchsorted(at_s, "right"))

    def training(self, at_s: float) -> int:
        """Number of marked training iterations up to this time (s)."""
        done = self.done(at_s)
        return int(self.trained[done - 1]) if done else 0

    def rate(self, at_s: float) -> float | None:
        """Iterations per second of wall time so far, waits included; None before two are done."""
        done = self.done(at_s)
        if done < 2:
            return None
        span_s = float(self.iterations_s[done - 1] - self.iterations_s[0])
        return (done - 1) / span_s if span_s > 0.0 else None


class RecordedTurns:
    """Traces of a run. Each is read when it is first asked for."""

    def __init__(self, folder: RunFolder) -> None:
        """Traces in a run folder."""
        self._folder = folder
        self._known: OrderedDict[tuple[str, int], AttemptTrace] = OrderedDict()

    def of(self, job: str, attempt: int) -> AttemptTrace:
        """Trace of an attempt, which is empty if there is none."""
        key = job, attempt
        if key not in self._known:
            self._known[key] = self._read(job, attempt)
            if len(self._known) > _MOST_TRACES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    def _read(self, job: str, attempt: int) -> AttemptTrace:
        kinds, times_s = trace.columns(trace.trace_path(self._folder.job(job), attempt))
        is_turn, is_iteration = kinds <= Kind.TURN_ENDS, (kinds == Kind.TRAIN) | (kinds == Kind.EVAL)
        trained = (kinds[is_iteration] == Kind.TRAIN).cumsum()
        return AttemptTrace(times_s[is_turn], kinds[is_turn] == Kind.TURN_BEGINS, times_s[is_iteration], trained)
