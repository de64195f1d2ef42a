"""Rounds from shares of time: base of max-min fairness, finish-time fairness and AlloX.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI
2020, section 5. A policy gives each job a share of the time. Each round goes to the jobs that lag most behind their
shares.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.core.policies.common import InRounds, pick
from ecoshare.core.records import Job

ROUND_S, RESET_S = 120.0, 0.0

_STEPS = 60


class Shares(InRounds):
    """Policy that gives each round to the jobs with the largest ratio: share / time had since the last allocation.

    Attributes:
        round_s: Option `round`: length of a round (s, 120; Gavel: 360).
        reset_s: Option `reset`: shortest time (s) between two allocations (0; Gavel's and Shockwave's simulators: 1000
            to 1920). Shares are allocated anew when jobs have come or ended. A job that comes before then waits.
    """

    options: ClassVar[tuple[str, ...]] = ("reset", "round")

    def __init__(self, options: Mapping[str, float]) -> None:
        self.round_s, self.reset_s = options.get("round", ROUND_S), options.get("reset", RESET_S)
        self._share: dict[str, float] = {}
        self._had: dict[str, float] = {}  # seconds since the last allocation, with a credit of half a round
        self._seen: dict[str, float] = {}  # attained service (s) at the last count
        self._owed: dict[str, float] = {}
        self._reset_at_s = -math.inf
        self._is_stale = False

    @abstractmethod
    def allocate(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[float]:
        """Share of time, in [0, 1], of each job.

        The sum of shares multiplied by GPUs is at most `devices`.

        Args:
            jobs: At least one job.
            devices: Number of devices.
            at_s: Present time (s).
        """

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Jobs that run in the round that begins."""
        if self.is_due(jobs, at_s):
            self._reset(jobs, devices, at_s)

        def urgency(job: Job) -> tuple[float, ...]:
            name = job.spec.name
            return (-self._share[name] / self._had[name], -self._owed[name], -self._share[name], job.number)

        return pick(sorted((job for job in jobs if job.spec.name in self._share), key=urgency), devices)

    def is_due(self, jobs: Sequence[Job], at_s: float) -> bool:
        """Whether shares must be allocated anew. The call also counts the time that jobs have had."""
        self._count(jobs, at_s)
        return self._is_stale and at_s - self._reset_at_s >= self.reset_s

    def _count(self, jobs: Sequence[Job], at_s: float) -> None:
        """Count the time that each job has had since the last call. Shares become stale if jobs have come or ended."""
        names = {job.spec.name for job in jobs}
        gone = self._seen.keys() - names
        self._is_stale |= bool(gone)
        for name in gone:
            for of in (self._seen, self._had, self._owed, self._share):
                of.pop(name, None)
        for job in jobs:
            name, attained_s = job.spec.name, job.attained_s(at_s)
            if name not in self._seen:
                self._had[name], self._owed[name], self._is_stale = self.round_s / 2, 0.0, True
            else:
                self._had[name] += attained_s - self._seen[name]
            self._seen[name] = attained_s

    def _reset(self, jobs: Sequence[Job], devices: int, at_s: float) -> None:
        for job in jobs:
            name = job.spec.name
            due_s = self._share.get(name, 0.0) * (at_s - self._reset_at_s) if name in self._share else 0.0
            self._owed[name] += due_s - (self._had[name] - self.round_s / 2)
            self._had[name] = self.round_s / 2
        self._reset_at_s, self._is_stale = at_s, False
        shares = self.allocate(jobs, devices, at_s) if jobs else []
        self._share = {job.spec.name: share for job, share in zip(jobs, shares, strict=True)}


def with_spare(least: Sequence[float], gpus: Sequence[int], devices: int) -> list[float]:
    """Shares that give each job at least its least share, and divide the spare time so that no job is near its bounds.

    If the optimum of a policy leaves time over, any use of it is equally good for the policy. The result is the
    analytic centre of the remaining choices, where the interior-point solvers that Gavel uses end. It maximises the sum
    of 2 log(x - least) + log(1 - x) over the jobs, plus the logarithm of the idle devices. Idle spare time would be
    wasted.

    Args:
        least: Least share of each job.
        gpus: Number of GPUs of each job.
        devices: Number of devices.
    """
    spare = devices - sum(share * count for share, count in zip(least, gpus, strict=True))
    if spare <= 1e-9 or all(share >= 1.0 for share in least):
        return [min(1.0, share) for share in least]

    def more(share: float, price: float) -> float:
        """Share u beyond the least share at a price of a GPU-second: the root of 2 / u - 1 / (w - u) = price."""
        width = 1.0 - share
        half = price * width + 3.0
        return 4.0 * width / (half + math.sqrt(half * half - 8.0 * price * width)) if width > 0.0 else 0.0

    low, high = 1e-9, 1e9
    for _ in range(_STEPS):
        price = math.sqrt(low * high)
        used = sum(count * more(share, count * price) for share, count in zip(least, gpus, strict=True))
        if (spare - used) * price > 1.0:
            high = price
        else:
            low = price
    return [min(1.0, share + more(share, count * low)) for share, count in zip(least, gpus, strict=True)]
