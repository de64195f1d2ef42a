"""Watch over the phases of a job: which one is worth another setting of its device.

::

    look each second     T T T E E E E E E E E E E E E T T       T trains, E evaluates
    told                             ▲                 ▲
                                     after 5 s         at once: limits count again

A change of the setting costs time, and nothing tells how long a phase will be. So the first one of a class is told
after some seconds. Later ones are told at once if they use to be long, and hardly ever if they use to be short.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from ecoshare.base.attempt import Usage
from ecoshare.base.measurement import JobPhase

UNKNOWN_S = 5.0
"""Time (s) after which a phase is told if the class had none of its kind yet."""

LONG_S = 10.0
"""Usual length (s) from which a phase is told at once. If it is shorter, only a phase that exceeds this is told."""

_SELDOM = 0.05
"""Part of the time with the turn below which a job counts as away."""

_REMEMBERED = 9


@dataclass(slots=True)
class PhaseLengths:
    """Lengths (s) of the last phases of each class, by class and kind."""

    _lengths: dict[tuple[str, JobPhase], deque[float]] = field(default_factory=dict)

    def over(self, job_class: str, phase: JobPhase, length_s: float) -> None:
        """Note a phase that is over."""
        self._lengths.setdefault((job_class, phase), deque(maxlen=_REMEMBERED)).append(length_s)

    def patience_s(self, job_class: str, phase: JobPhase) -> float:
        """Time (s) after which such a phase is told."""
        if phase is JobPhase.TRAINS:
            return 0.0
        if (known := self._lengths.get((job_class, phase))) is None:
            return UNKNOWN_S
        return 0.0 if median(known) >= LONG_S else LONG_S


@dataclass(slots=True)
class PhaseWatch:
    """Watch over an attempt of a job, which begins in training.

    Attributes:
        told: Phase that was told last.
    """

    told: JobPhase = JobPhase.TRAINS
    _phase: JobPhase = JobPhase.TRAINS
    _since_s: float = 0.0
    _last: tuple[float, Usage] | None = None

    def saw(self, now_s: float, usage: Usage, is_away: bool, job_class: str, lengths: PhaseLengths) -> JobPhase | None:
        """Look at the job, and return the phase to tell; None if there is no news.

        Args:
            now_s: Present time (s).
            usage: Usage of the attempt so far.
            is_away: Whether the job neither has nor wants the turn.
            job_class: Class of the job.
            lengths: Lengths of the phases of all jobs.
        """
        (last_s, before), self._last = self._last or (now_s, usage), (now_s, usage)
        if not usage.iterations:  # a job that never trains has one phase, and what comes before is its start
            return None
        phase = self._phase
        if usage.iterations > before.iterations:
            phase = JobPhase.TRAINS
        elif usage.eval_iterations > before.eval_iterations:
            phase = JobPhase.EVALUATES
        elif is_away and usage.held_s - before.held_s < _SELDOM * (now_s - last_s):
            phase = JobPhase.AWAY
        if phase is not self._phase:
            if self._phase is not JobPhase.TRAINS:
                lengths.over(job_class, self._phase, last_s - self._since_s)
            self._phase, self._since_s = phase, last_s
        if phase is self.told or now_s - self._since_s < lengths.patience_s(job_class, phase):
            return None
        self.told = phase
        return phase
