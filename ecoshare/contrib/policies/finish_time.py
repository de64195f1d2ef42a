"""Finish-time fairness: no job ends much later than with an equal share of the cluster to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.contrib.policies.time_shares import Shares, with_spare
from ecoshare.core.policies.orders import expected_s
from ecoshare.core.records import Job

_STEPS = 60


class FinishTime(Shares):
    """Minimises the largest finish-time ratio rho, in rounds.

    ::

        rho_i = (age_i + need_i / x_i) / (isolated_i + need_i / s_i)

        x_i         share of time of job i
        s_i         share with an equal part of the cluster: min(1, devices / jobs / gpus_i)
        isolated_i  time (s) that the work done so far would have taken with s_i

    Source: Mahajan et al., "Themis", NSDI 2020, section 3. As an allocation: Narayanan et al., "Gavel", OSDI 2020,
    section 4.2.
    """

    name: ClassVar[str] = "finish-time"

    def __init__(self, options: Mapping[str, float]) -> None:
        super().__init__(options)
        self._isolated_s: dict[str, float] = {}
        self._before: dict[str, tuple[float, float]] = {}  # attained service and equal share, at the last allocation

    def allocate(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[float]:
        """Least shares that keep all ratios under one bound: the lowest bound that the devices allow."""
        if devices <= 0:  # jobs that cannot move hold all devices
            return [0.0 for _ in jobs]
        equal = [min(1.0, devices / len(jobs) / job.spec.gpus) for job in jobs]
        isolated_s, before = {}, {}
        for job, share in zip(jobs, equal, strict=True):
            name, attained_s = job.spec.name, job.attained_s(at_s)
            then_s, then_share = self._before.get(name, (0.0, share))
            isolated_s[name] = self._isolated_s.get(name, 0.0) + (attained_s - then_s) / then_share
            before[name] = attained_s, share
        self._isolated_s, self._before = isolated_s, before
        gpus = [job.spec.gpus for job in jobs]
        needs_s = [max(expected_s(job, at_s), 1e-6) for job in jobs]
        ages_s = [at_s - job.arrival_s for job in jobs]
        alone_s = [
            isolated_s[job.spec.name] + need / share for job, need, share in zip(jobs, needs_s, equal, strict=True)
        ]

        def shares(ratio: float) -> list[float]:
            """Least share of each job that keeps its ratio under the bound."""
            rows = zip(needs_s, alone_s, ages_s, strict=True)
            return [min(1.0, need / max(ratio * alone - age, 1e-9)) for need, alone, age in rows]

        def fits(ratio: float) -> bool:
            return sum(count * share for count, share in zip(gpus, shares(ratio), strict=True)) <= devices

        low = max((age + need) / alone for age, need, alone in zip(ages_s, needs_s, alone_s, strict=True))
        if fits(low):  # a job that is late even if it always runs decides alone
            return with_spare(shares(low), gpus, devices)
        high = low
        while not fits(high):
            high *= 2.0
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if fits(middle) else (middle, high)
        return shares(high)
