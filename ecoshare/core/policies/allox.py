"""AlloX: who runs where, so that the mean JCT is least, with a share of the jobs protected from starving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.core.commands import PlanJob
from ecoshare.core.policies.srtf import expected_s
from ecoshare.core.policies.time_shares import Shares
from ecoshare.core.records import Job

ALPHA = 0.2


class Allox(Shares):
    """A minimum-cost matching of jobs to places in the queues of the devices, in rounds.

    Source: Le et al., "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020: a job that is the k-th from the end
    of its queue delays k jobs by its time, so that the matching with the least sum of k x time has the least mean JCT;
    only the part `alpha` of the jobs that has waited longest is matched, so that nobody starves. A job that has begun
    keeps its device. An adviser makes the matching (`advisers/planners/allox_matching.py`); it becomes rounds as in
    Narayanan et al., "Gavel", OSDI 2020.
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
        """The jobs that are to be matched, each with the share that it has; none where nothing has changed."""
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
        """The matching: a share of time for each job that is first in a queue."""
        self._told = {**self._told, **shares}

    def allocate(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[float]:
        """As last told."""
        return [self._told.get(job.spec.name, 0.0) for job in jobs]
