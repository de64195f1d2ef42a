"""From shares of time to rounds: what max-min fairness, finish-time fairness and AlloX share.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI 2020,
section 5: a policy says which part of the time each job should run, and each round goes to those that lag most
behind it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.core.placement.rounds import pick
from ecoshare.core.policies.common import InRounds
from ecoshare.core.records import Job

ROUND_S, RESET_S = 120.0, 0.0

_STEPS = 60


class Shares(InRounds):
    """Chooses who runs in a round: the largest share for the time that a job has had since shares were last allocated.

    Attributes:
        round_s: Option `round`: seconds of a round (120; Gavel: 360).
        reset_s: Option `reset`: shares are allocated anew when jobs have come or ended, but not more often than this,
            and who comes in between waits (0: at once; Gavel's and Shockwave's simulators: 1000 to 1920 s).
    """

    options: ClassVar[tuple[str, ...]] = ("reset", "round")

    def __init__(self, options: Mapping[str, float]) -> None:
        self.round_s, self.reset_s = options.get("round", ROUND_S), options.get("reset", RESET_S)
        self._share: dict[str, float] = {}
        self._had: dict[str, float] = {}  # seconds since the last allocation, with a credit of half a round
        self._seen: dict[str, float] = {}  # attained service when last looked at
        self._owed: dict[str, float] = {}
        self._reset_at_s = -math.inf
        self._is_stale = False

    @abstractmethod
    def allocate(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[float]:
        """Shares of time of one job or more, each 0 to 1; times their GPUs they add up to the devices at most."""

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Those that run in the round that begins."""
        if self.is_due(jobs, at_s):
            self._reset(jobs, devices, at_s)

        def urgency(job: Job) -> tuple[float, ...]:
            name = job.spec.name
            return (-self._share[name] / self._had[name], -self._owed[name], -self._share[name], job.number)

        return pick(sorted((job for job in jobs if job.spec.name in self._share), key=urgency), devices)

    def is_due(self, jobs: Sequence[Job], at_s: float) -> bool:
        """Whether shares are to be allocated anew."""
        self._count(jobs, at_s)
        return self._is_stale and at_s - self._reset_at_s >= self.reset_s

    def _count(self, jobs: Sequence[Job], at_s: float) -> None:
        """What each job had since the last round began."""
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
    """Shares that give each job its least, and what is spare so that no job is near its bounds.

    Where a policy's optimum leaves time over, any use of it is as good by that policy. This is the analytic centre of
    what is left, where the interior-point solvers end that Gavel uses: it maximises 2 log(x - least) + log(1 - x),
    summed, plus the logarithm of the idle devices. Giving nobody the spare time would waste it.
    """
    spare = devices - sum(share * count for share, count in zip(least, gpus, strict=True))
    if spare <= 1e-9 or all(share >= 1.0 for share in least):
        return [min(1.0, share) for share in least]

    def more(share: float, price: float) -> float:
        """Beyond its least, where a GPU-second has this price: the root of 2 / u - 1 / (w - u) = price."""
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
