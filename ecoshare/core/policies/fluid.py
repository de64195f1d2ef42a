"""Fluid: as many devices for each job as its part of all that is left, or a place beside others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import ClassVar

from ecoshare.core.placement.water_filling import poured
from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, Key

RESTART_S = 10.0


class Fluid(WithOptions):
    """The longest first, as wide as the water stands: all should end together.

    Source: Yu et al., "Fluid: Resource-aware Hyperparameter Tuning Engine", MLSys 2021; the widths are those of
    `placement/water_filling.py`, and `placement/elastic_placement.py` says which devices a job gets. Widths are poured
    anew whenever a job comes, ends, pauses or is pruned. A job needs the time of an iteration alone, by its profile,
    times the iterations until it ends or pauses. A job without either counts as the mean of the others.

    Otherwise than there: what rounding down leaves over is given away, too; all that are there are one group, and the
    order of the widths follows the lengths. In Fluid's published code the lengths are sorted in no order, the smallest
    share is 2 devices in place of a half, and the widths are made to fill all devices by any fractions.

    Options: `restart`, seconds that a job loses when it is stopped and started again: it is resized where more is
    gained (10).
    """

    name: ClassVar[str] = "fluid"
    preempts: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("restart",)

    def __init__(self, options: Mapping[str, float]) -> None:
        self.restart_s = options.get("restart", RESTART_S)

    def order(self, job: Job, at_s: float) -> Key:
        """The longest first; one of which that is not known comes first here, since what it counts as may change."""
        needs_s = job.needs_s(at_s)
        return (-math.inf if needs_s is None else -needs_s * job.spec.gpus,)

    def rank(self, job: Job) -> float:
        """All equal: those that share a lane are served in turn."""
        return 0.0

    def needs(self, jobs: Sequence[Job], at_s: float) -> list[float]:
        """Seconds that each needs on one device."""
        known = [None if (each_s := job.needs_s(at_s)) is None else each_s * job.spec.gpus for job in jobs]
        others = [each for each in known if each is not None]
        mean = fmean(others) if others else 1.0
        return [mean if each is None else each for each in known]

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Widths by what each needs."""
        return poured(needs, devices, share, most)
