"""Result of a simulation, as a whole and for each job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from ecoshare.core.events import Config
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.traces.job_trace import Trace

_MOST_BINS = 512


class UsageIntegrals:
    """Integrals over time, kept up to date at every change.

    Attributes:
        busy: Number of devices at work now.
        demand: Number of devices that all jobs want that have arrived and not ended.
        watts: Power (W) of all devices now.
        busy_s: Device-seconds at work.
        demand_s: Device-seconds wanted.
        energy_j: Energy (J) of all devices.
    """

    def __init__(self, devices: int, idle_w: float) -> None:
        self.busy, self.demand, self.watts = 0, 0.0, idle_w * devices
        self.busy_s = self.demand_s = self.energy_j = 0.0
        self._at_s = 0.0
        self._bin_s, self._bins = 1.0, [0.0]

    def advance(self, now_s: float) -> None:
        """Integrate the present values up to `now_s`."""
        passed_s = now_s - self._at_s
        if passed_s <= 0.0:
            return
        self.busy_s += passed_s * self.busy
        self.demand_s += passed_s * self.demand
        self.energy_j += passed_s * self.watts
        self._fill(now_s)
        self._at_s = now_s

    def work(self, devices: int, watts: float, now_s: float) -> None:
        """Add devices at work and their power (W) from now on; negative values subtract."""
        self.advance(now_s)
        self.busy += devices
        self.watts += watts

    def want(self, devices: float, now_s: float) -> None:
        """Add devices to the demand from now on; a negative number subtracts."""
        self.advance(now_s)
        self.demand += devices

    def utilisation(self) -> tuple[float, list[float]]:
        """Length (s) of a bin, and busy device-seconds in each bin from the beginning."""
        return self._bin_s, list(self._bins)

    def _fill(self, now_s: float) -> None:
        while now_s > self._bin_s * _MOST_BINS:
            self._bin_s *= 2.0
            pairs = self._bins + [0.0] * (len(self._bins) % 2)
            self._bins = [pairs[place] + pairs[place + 1] for place in range(0, len(pairs), 2)]
        from_s = self._at_s
        while from_s < now_s:
            place = int(from_s / self._bin_s)
            to_s = min(now_s, (place + 1) * self._bin_s)
            if place >= len(self._bins):
                self._bins += [0.0] * (place + 1 - len(self._bins))
            self._bins[place] += self.busy * (to_s - from_s)
            from_s = to_s


UNFAIR = 1.05
"""Finish-time ratio above which a job counts as treated unfairly (Zheng et al., "Shockwave", NSDI 2023)."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of one job.

    Attributes:
        start_s: Time (s) at which its first attempt was started.
        service_s: Time (s) that the work of the job, as far as it was done, takes alone.
        placed_s: Time (s) for which the job had a place.
        attempts: Number of attempts: preemptions plus 1.
        contention: Mean number of devices wanted while the job was present / number of devices; at least 1.
        service: Requests of the job in all of its attempts; None if it is no service. Joules are not known.
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
    service: ServiceSummary | None = None

    @property
    def jct_s(self) -> float:
        """Job completion time (s): from arrival to end."""
        return self.finish_s - self.arrival_s

    @property
    def rho(self) -> float:
        """Finish-time ratio: JCT / JCT with an equal share of the cluster. Below 1, the job did better than that.

        Mahajan et al., "Themis", NSDI 2020, section 3.1.
        """
        return self.jct_s / (self.service_s * self.contention) if self.service_s > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Result of one trace under one policy.

    Attributes:
        finished: Jobs in the order of their end.
        makespan_s: Time (s) from the first arrival to the last end.
        preemptions: Number of times that a job was stopped and gave up its place.
        utilisation: Mean share of the makespan for which a device was at work.
        energy_j: Modelled energy (J) of all devices over the makespan.
        work_s: Device-seconds that the work of all jobs takes alone.
        bin_s: Length (s) of a bin of `busy`.
        busy: Mean number of devices at work in each bin.
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
        """Result of a simulation that has ended."""
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
    def services(self) -> tuple[Finished, ...]:
        """Services in the order of their end."""
        return tuple(each for each in self.finished if each.service is not None)

    @property
    def _others(self) -> list[Finished]:
        """Jobs with an end of their own. A service often ends with the other jobs, so its JCT says nothing."""
        return [each for each in self.finished if each.service is None]

    @property
    def jcts_s(self) -> np.ndarray:
        """Job completion times (s) of all jobs but services, shape (n_jobs,)."""
        return np.array([each.jct_s for each in self._others])

    @property
    def rhos(self) -> np.ndarray:
        """Finish-time ratios of all jobs but services, shape (n_jobs,)."""
        return np.array([each.rho for each in self._others])

    def as_dict(self) -> dict[str, Any]:
        """Figures of the result's row and of each service, as plain data for JSON; None for what is not known."""
        jcts_s = self.jcts_s
        rhos = self.rhos
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
            "mean_queue_s": float(np.mean([each.jct_s - each.placed_s for each in self._others])) if known else None,
            "worst_rho": float(rhos.max()) if known else None,
            "unfair": float((rhos > UNFAIR).mean()) if known else None,
            "preemptions": self.preemptions,
            "utilisation": self.utilisation,
            "energy_j": self.energy_j,
            "energy_per_work_j": self.energy_j / self.work_s if self.work_s > 0.0 else None,
            "services": [{"name": each.name, **asdict(each.service)} for each in self.services if each.service],
        }


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """Simulation of one policy on the trace of one seed.

    Attributes:
        policy: Name of the policy.
        seed: Seed of the trace.
        figures: Figures of the result, as in `SimulationResult.as_dict`; None for what is not known.
        wall_s: Wall time (s) that the simulation took.
    """

    policy: str
    seed: int
    figures: dict[str, Any]
    wall_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies on the traces of some seeds.

    Attributes:
        policies: Names of the policies.
        seeds: Seeds of the traces.
        runs: Each policy on each trace: first all seeds of the first policy.
        power: Description of the power that joules are modelled with.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[ComparedRun, ...]
    power: str

    def values(self, policy: str, figure: str) -> list[float] | None:
        """A figure of a policy, seed by seed; None if it is not known of each.

        Args:
            policy: Name of the policy.
            figure: Key of the figure, such as `mean_jct_s`.
        """
        found = [run.figures[figure] for run in self.runs if run.policy == policy]
        return None if any(value is None for value in found) else [float(value) for value in found]

    def ratios(self, policy: str, figure: str) -> list[float] | None:
        """A figure of a policy over that of the first policy on the same trace, seed by seed; None if not known."""
        own, first = self.values(policy, figure), self.values(self.policies[0], figure)
        if own is None or first is None or not all(first):
            return None
        return [value / other for value, other in zip(own, first, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `ecoshare simulate --compare --json` prints it."""
        return {
            "schema_version": 1,
            "energy_source": "modelled",
            "power": self.power,
            "policies": list(self.policies),
            "seeds": list(self.seeds),
            "runs": [asdict(run) for run in self.runs],
        }


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Median of values, and their 10th and 90th percentile."""
    low, high = np.quantile(values, (0.1, 0.9))
    return median(values), float(low), float(high)
