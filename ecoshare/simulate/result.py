"""What came of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ecoshare.core.events import Config
from ecoshare.simulate.cluster import Cluster
from ecoshare.simulate.traces.job_trace import Trace
from ecoshare.simulate.usage_integrals import UsageIntegrals

UNFAIR = 1.05
"""Finish-time ratio beyond which a job was treated unfairly (Zheng et al., "Shockwave", NSDI 2023)."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job went.

    Attributes:
        start_s: When its first attempt was started.
        service_s: How long it takes alone.
        placed_s: Time for which it had a place.
        attempts: One more than it was preempted.
        contention: Devices wanted while it was there, over those that there are; at least 1.
    """

    name: str
    arrival_s: float
    start_s: float
    finish_s: float
    gpus: int
    service_s: float
    placed_s: float
    attempts: int
    contention: float

    @property
    def jct_s(self) -> float:
        """From its arrival to its end."""
        return self.finish_s - self.arrival_s

    @property
    def rho(self) -> float:
        """Finish-time ratio: its JCT over what it would be with an equal share of the cluster of its own.

        Mahajan et al., "Themis", NSDI 2020, section 3.1. Below 1 it did better than that.
        """
        return self.jct_s / (self.service_s * self.contention) if self.service_s > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Of one trace under one policy.

    Attributes:
        finished: By the time of their end.
        makespan_s: From the first arrival to the last end.
        preemptions: How often a job gave up its place.
        utilisation: Part of the makespan that a device was at work, on average.
        energy_j: Of all devices over the makespan; modelled.
        work_s: Device-seconds of work that were asked for.
        bin_s: Seconds of a bin of `busy`.
        busy: Devices at work, over time.
    """

    policy: str
    finished: tuple[Finished, ...]
    makespan_s: float
    preemptions: int
    utilisation: float
    energy_j: float
    work_s: float
    bin_s: float
    busy: tuple[float, ...]

    @classmethod
    def of(
        cls, trace: Trace, cluster: Cluster, config: Config, finished: Sequence[Finished], account: UsageIntegrals
    ) -> SimulationResult:
        """Add up a simulation that is over."""
        begin_s = min((each.arrival_s for each in finished), default=0.0)
        makespan_s = max((each.finish_s for each in finished), default=0.0) - begin_s
        bin_s, bins = account.utilisation()
        return cls(
            policy=config.policy,
            finished=tuple(finished),
            makespan_s=makespan_s,
            preemptions=sum(each.attempts - 1 for each in finished),
            utilisation=account.busy_s / (cluster.size * makespan_s) if makespan_s > 0.0 else 0.0,
            energy_j=account.energy_j - begin_s * cluster.size * cluster.gpu.idle_w,
            work_s=sum(each.gpus * each.service_s for each in finished),
            bin_s=bin_s,
            busy=tuple(each / bin_s for each in bins),
        )

    @property
    def jcts_s(self) -> np.ndarray:
        """(n_jobs,)."""
        return np.array([each.jct_s for each in self.finished])

    def as_dict(self) -> dict[str, float | int | str | None]:
        """The figures of its row, plain for JSON; None where there was no job."""
        jcts_s = self.jcts_s
        rhos = np.array([each.rho for each in self.finished])
        known = len(jcts_s) > 0

        def quantile(share: float) -> float | None:
            return float(np.quantile(jcts_s, share)) if known else None

        return {
            "policy": self.policy,
            "jobs": len(self.finished),
            "mean_jct_s": float(jcts_s.mean()) if known else None,
            "median_jct_s": quantile(0.5),
            "p95_jct_s": quantile(0.95),
            "p99_jct_s": quantile(0.99),
            "makespan_s": self.makespan_s,
            "mean_queue_s": float(np.mean([each.jct_s - each.placed_s for each in self.finished])) if known else None,
            "worst_rho": float(rhos.max()) if known else None,
            "unfair": float((rhos > UNFAIR).mean()) if known else None,
            "preemptions": self.preemptions,
            "utilisation": self.utilisation,
            "energy_j": self.energy_j,
            "energy_per_work_j": self.energy_j / self.work_s if self.work_s > 0.0 else None,
        }
