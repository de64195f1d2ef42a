"""Sweeps of a simulated trace: when each one opens, and its trials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ecoshare.core.events import Event, SweepOpened
from ecoshare.simulation.traces.job_trace import Trace, TraceSweep, TraceTrial
from ecoshare.values.job_spec import SweepSpec


class SimulatedSweeps:
    """Sweeps of a trace."""

    def __init__(self, trace: Trace, later: Callable[[float, Callable[[float], Event | None]], None]) -> None:
        """No sweep is open yet.

        Args:
            trace: The trace.
            later: Tells the core an event at a time (s).
        """
        self._later = later
        self._sweeps = {sweep.name: sweep for sweep in trace.sweeps}
        self._unfinished = {sweep.name: len(sweep.trials) for sweep in trace.sweeps}

    @property
    def are_unfinished(self) -> bool:
        """Whether a trial has not ended."""
        return any(self._unfinished.values())

    def schedule(self) -> None:
        """Let each sweep that follows no other one open at its time."""
        for sweep in self._sweeps.values():
            if not sweep.after:
                self._later(sweep.opens_s, partial(_opened, sweep))

    def trial(self, sweep: str, number: int) -> TraceTrial | None:
        """Trial of a sweep with this number, from 0; None if there are no more."""
        trials = self._sweeps[sweep].trials
        return trials[number] if number < len(trials) else None

    def ended(self, sweep: str, now_s: float) -> None:
        """Note that a trial has ended. If it was the last one of its sweep, the sweeps after that one open."""
        self._unfinished[sweep] -= 1
        if not self._unfinished[sweep]:
            for each in self._sweeps.values():
                if each.after == sweep:
                    self._later(now_s, partial(_opened, each))


def _opened(sweep: TraceSweep, now_s: float) -> SweepOpened:
    return SweepOpened(now_s, SweepSpec(sweep.name, sweep.parallel, early_stopping=sweep.early_stopping))
