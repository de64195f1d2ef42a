"""Jobs on processors that get warm before the first window of their class.

::

    A, never seen   loads its data ──► first iterations ──► window ──► known: it joins the best group
                    beside others      alone, or beside
                                       jobs that wait

Most scripts keep all processors busy. Two of them that get warm beside each other are slow, and both their windows are
late. So the device is theirs one after the other. A job that loads its data is not in the way of another one yet.
"""

from __future__ import annotations

from ecoshare.core.placement.colocation_estimates import ColocationEstimates
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.profiling_windows import WARM_UP_S
from ecoshare.core.records import Job


class WarmingUp:
    """How busy jobs keep the processors, as far as it is known or assumed until their windows."""

    def __init__(self, outlook: ColocationEstimates, fit: MemoryFit, on_processors: bool, counts_power: bool) -> None:
        """No job is looked at.

        Args:
            outlook: Measurements of each class alone.
            fit: Knows which classes are new.
            on_processors: Whether the devices are processors. On other devices no job counts as one that gets warm.
            counts_power: Whether the objective counts power. Then a job gets warm from its first iteration on, and else
                after a second: jobs that turn out to leave the processors idle have come further by then.
        """
        self._least_s = 0.0 if counts_power else WARM_UP_S
        self._outlook, self._fit, self._on_processors = outlook, fit, on_processors

    def is_of(self, job: Job) -> bool:
        """Whether a job gets warm: it has begun, and its class will have its first window as soon as it is warm."""
        return self._on_processors and job.usage.held_s >= self._least_s and self._fit.gets_warm(job)

    def busy(self, job: Job) -> float:
        """Part of the processors that a job keeps busy: see `job_groups.Candidate`.

        A profile in doubt does not count until the class was measured again. With it, a busy job would never begin
        beside others, and so never be measured.
        """
        if not self._on_processors:
            return 0.0
        solo = self._outlook.solos.get(job.spec.job_class)
        if solo is None or solo.busy is None or self._fit.is_new(job):
            return float(self.is_of(job))
        return solo.busy
