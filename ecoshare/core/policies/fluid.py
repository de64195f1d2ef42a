"""Fluid: devices in proportion to the work that each job has left, or a place on a shared device."""

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
    """Policy that makes long jobs wide by water filling, so that all jobs end together.

    Source: Yu et al., "Fluid: Resource-aware Hyperparameter Tuning Engine", MLSys 2021. `placement/water_filling.py`
    computes the widths, and `placement/elastic_placement.py` chooses the devices of each job. Widths are computed anew
    whenever a job arrives, ends, pauses or is pruned. The need of a job is the profiled time of an iteration alone,
    multiplied by the iterations until the job ends or pauses. A job of unknown need counts as the mean of the others,
    and at least as long as it has run so far.

    Differences from the paper: devices that rounding down leaves over are given away, too. All present jobs are one
    group. The order of the widths follows the lengths. In Fluid's published code the lengths are not sorted, the
    smallest share is 2 devices instead of a half, and arbitrary fractions of widths fill all devices.

    Attributes:
        restart_s: Option `restart`: time (s) that a job loses when it is stopped and started again (10). A job is
            resized only if it gains more.
    """

    name: ClassVar[str] = "fluid"
    preempts: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("restart",)

    def __init__(self, options: Mapping[str, float]) -> None:
        self.restart_s = options.get("restart", RESTART_S)

    def order(self, job: Job, at_s: float) -> Key:
        """Longest first. A job of unknown length goes first, because the mean that stands for it may change."""
        needs_s = job.needs_s(at_s)
        return (-math.inf if needs_s is None else -needs_s * job.spec.gpus,)

    def rank(self, job: Job) -> float:
        """Zero: all ranks are equal, and the jobs of a lane take turns."""
        return 0.0

    def needs(self, jobs: Sequence[Job], at_s: float) -> list[float]:
        """Time (s) that each job needs on one device; for a job of unknown need an estimate, see the class."""
        known_s = [job.needs_s(at_s) for job in jobs]
        known = [job.spec.gpus * each for job, each in zip(jobs, known_s, strict=True) if each is not None]
        mean = fmean(known) if known else 1.0
        return [
            job.spec.gpus * each if each is not None else max(mean, job.spec.gpus * job.widening * job.attained_s(at_s))
            for job, each in zip(jobs, known_s, strict=True)
        ]

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Widths of the jobs, in proportion to their needs."""
        return poured(needs, devices, share, most)
