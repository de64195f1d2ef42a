"""Gandiva: jobs are packed beside others by trial, and the packing is undone where it does not pay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ecoshare.core.policies.base import NeighbourRate
from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, Key

TRIAL, MARGIN = 50.0, 0.05


class Gandiva(WithOptions):
    """The earliest first, each on an empty device; where none is left, beside another job as long as that pays.

    Source: Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018, section 4 (packing in
    overload). A job is tried beside the one with the lowest use of its device, as the watts of its profile tell; of
    equal ones beside whom the two are known to be fastest. Each has a lane of its own. The rates of both are watched
    (`placement/observed_rates.py`): where the sum of their speeds, each over that alone, is below 1, which
    turns would give, the newcomer gives way if it can be moved. Jobs of these two classes are not packed again then.

    Otherwise than there: what was found out holds for all jobs of the two classes; jobs of several devices are not
    packed, and neither migrated nor made larger.

    Options: `trial`, iterations that both must have done beside each other before they are judged (50); `margin`, by
    how much the sum must be above 1, since measuring errs and stopping costs (0.05). Both are ours.
    """

    name: ClassVar[str] = "gandiva"
    preempts: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("margin", "trial")

    def __init__(self, options: Mapping[str, float]) -> None:
        self._trial, self._least = options.get("trial", TRIAL), 1.0 + options.get("margin", MARGIN)
        self._speeds: dict[tuple[str, ...], float] = {}  # of both together, by their classes

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)

    def rank(self, job: Job) -> float:
        """All equal: those that share a lane are served in turn."""
        return 0.0

    def beside(self, job: Job, other: Job) -> Key | None:
        """The lowest use first, whoever was not found to be a bad neighbour."""
        speed = self._speeds.get(_pair(job, other))
        if speed is not None and speed < self._least:
            return None
        use_w = other.spec.power_w
        return (math.inf if use_w is None else use_w, -(speed or 0.0))

    def pays(self, one: Job, other: Job) -> bool:
        """Whether jobs of these classes were seen to be faster beside each other than in turn."""
        return self._speeds.get(_pair(one, other), 0.0) >= self._least

    def judge(self, first: NeighbourRate, newcomer: NeighbourRate) -> bool:
        """By the speeds of both together, once they are known: of these two, or of an earlier pair of their classes."""
        pair = _pair(first.job, newcomer.job)
        if pair not in self._speeds:
            enough = min(first.iterations, newcomer.iterations) >= self._trial
            if not enough or first.speed is None or newcomer.speed is None:
                return False
            self._speeds[pair] = first.speed + newcomer.speed
        return self._speeds[pair] < self._least


def _pair(one: Job, other: Job) -> tuple[str, ...]:
    return tuple(sorted((one.spec.job_class, other.spec.job_class)))
