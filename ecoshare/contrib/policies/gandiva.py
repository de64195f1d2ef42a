"""Gandiva: co-locates jobs on trial, and undoes a packing that does not pay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ecoshare.core.policies.base import NeighbourRate
from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, Key

TRIAL, MARGIN = 50.0, 0.05


class Gandiva(WithOptions):
    """Policy that gives the earliest job an empty device, or else a place beside another job while that pays.

    Source: Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018, section 4 (packing in
    overload). A waiting job is tried beside the job that uses its device least, by the power in its profile. Ties go to
    the neighbour with which the pair is known to be fastest. Each job has a lane of its own. The rates of both jobs are
    observed (`trial_placement.py`). Taking turns would give relative speeds (rate beside the neighbour / rate
    alone) with a sum of 1. If the sum is not above 1 by a margin, the newcomer gives way, provided it can be moved.
    Jobs of the two classes are then not packed again.

    Differences from the paper: a result holds for all jobs of the two classes. Jobs of several devices are not packed.
    No job is migrated or made larger.

    Options, both our own: `trial`, the iterations that both jobs must do side by side before they are judged (50);
    `margin`, the least excess of the sum above 1 (0.05). The margin exists because measurements have errors and
    stopping costs time.
    """

    name: ClassVar[str] = "gandiva"
    needs_places: ClassVar[bool] = True
    preempts: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("margin", "trial")

    def __init__(self, options: Mapping[str, float]) -> None:
        self._trial, self._least = options.get("trial", TRIAL), 1.0 + options.get("margin", MARGIN)
        self._speeds: dict[tuple[str, ...], float] = {}  # sum for each pair of classes

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)

    def rank(self, job: Job) -> float:
        """Zero: all ranks are equal, and the jobs of a lane take turns."""
        return 0.0

    def beside(self, job: Job, other: Job) -> Key | None:
        """Power of the neighbour, the lowest first; None if the two classes were found to be bad neighbours."""
        speed = self._speeds.get(_pair(job, other))
        if speed is not None and speed < self._least:
            return None
        use_w = other.spec.active_w
        return (math.inf if use_w is None else use_w, -(speed or 0.0))

    def pays(self, one: Job, other: Job) -> bool:
        """Whether jobs of these classes were measured to be faster side by side than in turn."""
        return self._speeds.get(_pair(one, other), 0.0) >= self._least

    def judge(self, first: NeighbourRate, newcomer: NeighbourRate) -> bool:
        """Whether the newcomer must give way: the sum of both speeds is known and too low.

        The sum is that of this pair, or of an earlier pair of the same classes.
        """
        pair = _pair(first.job, newcomer.job)
        if pair not in self._speeds:
            enough = min(first.iterations, newcomer.iterations) >= self._trial
            if not enough or first.speed is None or newcomer.speed is None:
                return False
            self._speeds[pair] = first.speed + newcomer.speed
        return self._speeds[pair] < self._least


def _pair(one: Job, other: Job) -> tuple[str, ...]:
    return tuple(sorted((one.spec.job_class, other.spec.job_class)))
