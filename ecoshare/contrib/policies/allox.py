"""AlloX: a matching of jobs to devices with the least mean JCT, restricted so that no job starves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.contrib.policies.time_shares import Shares
from ecoshare.core.commands import PlanJob
from ecoshare.core.policies.orders import expected_s
from ecoshare.core.records import Job

ALPHA = 0.2


class Allox(Shares):
    """A minimum-cost matching of jobs to places in the queues of the devices, in rounds.

    Source: Le et al., "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020. A job that is the k-th from the end
    of its queue delays k jobs by its time. So the matching with the least sum of k x time has the least mean JCT. Only
    the part `alpha` of the unmatched jobs that arrived first is matched, so no job starves. A matched job of one GPU
    keeps its device.

    A planner makes the matching (`allox_matching.py`). The matching becomes rounds as in Narayanan et
    al., "Gavel", OSDI 2020.
    """

    name: ClassVar[str] = "allox"
    options: ClassVar[tuple[str, ...]] = (*Shares.options, "alpha")
    planner: ClassVar[str] = "allox"

    def __init__(self, options: Mapping[str, float]) -> None:
        super().__init__(options)
        self.planned_by: tuple[tuple[str, float], ...] = ()
        self._alpha = options.get("alpha", ALPHA)
        self._told: dict[str, float] = {}

    def question(self, jobs: Sequence[Job], devices: int, at_s: float) -> tuple[PlanJob, ...]:
        """Jobs that keep their devices and jobs to match; empty if the last matching still holds."""
        if not self.is_due(jobs, at_s):
            return ()
        fixed = [job for job in jobs if self._told.get(job.spec.name) == 1.0]
        loose = sorted((job for job in jobs if job not in fixed), key=lambda job: job.number)
        loose = loose[: max(int(self._alpha * len(loose)), devices - len(fixed))]
        return tuple(
            PlanJob(job.spec.name, job.spec.gpus, max(expected_s(job, at_s), 0.0), at_s - job.arrival_s, job in fixed)
            for job in sorted([*fixed, *loose], key=lambda job: job.number)
        )

    def told(self, shares: Mapping[str, float]) -> None:
        """Note the matching: the share of time of each job that is first in a queue."""
        self._told = {**self._told, **shares}

    def allocate(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[float]:
        """Shares of time, in [0, 1], from the last matching."""
        return [self._told.get(job.spec.name, 0.0) for job in jobs]
