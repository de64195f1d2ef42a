"""Critical: the earliest due date first, except that jobs which would move the end of all work run now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.contrib.policies.epoch_forecast import EpochForecast
from ecoshare.core.policies.common import InRounds, pick
from ecoshare.core.policies.orders import expected_s
from ecoshare.core.records import Job

ROUND_S = 120.0


class Critical(InRounds):
    """Short makespan, short JCTs and fairness by two rules, in rounds.

    ::

        bound = max(sum_i gpus_i left_i / devices, max_i left_i)       least time (s) until all work could be done
        due_i = arrival_i + (had_i + left_i) max(1, jobs / devices)    end with an equal share of the cluster

    1. A job is critical if its time left comes within a round of the bound: if it waited now, the last job would end
       later. Critical jobs go first, the longest of them before the rest.
    2. All other jobs go by due date. In overload the shortest goes first, and no job waits for ever, since dates pass.

    Devices that a job leaves in a round, or that the round has left free, get waiting jobs at once by the same rules.

    This policy is our own. Rule 1 is the bound of McNaughton, "Scheduling with deadlines and loss functions",
    Management Science 6, 1959: the shortest makespan with preemption is the larger of the backlog and the longest job.
    Rule 2 is earliest due date first (Jackson, 1955), with the due date of Mahajan et al., "Themis", NSDI 2020. The
    time left is forecast for jobs that change their batch sizes (`epoch_forecast.py`).

    Attributes:
        round_s: Option `round`: length of a round (s, 120). The policy has no other constant.
    """

    name: ClassVar[str] = "critical"
    options: ClassVar[tuple[str, ...]] = ("round",)

    def __init__(self, options: Mapping[str, float]) -> None:
        self.round_s = options.get("round", ROUND_S)
        self._forecasts: dict[str, EpochForecast] = {}

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Critical jobs, then the other jobs by due date."""
        for name in self._forecasts.keys() - {job.spec.name for job in jobs}:
            del self._forecasts[name]
        return self.fill(jobs, devices, at_s)

    def fill(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Jobs by the same rules, as if there were no others."""
        if not jobs or not devices:
            return []
        left_s = {job: self._left_s(job, at_s) for job in jobs}
        backlog_s = sum(job.spec.gpus * left_s[job] for job in jobs) / devices
        critical_s = max(backlog_s, *left_s.values()) - self.round_s
        contention = max(1.0, len(jobs) / devices)

        def urgency(job: Job) -> tuple[float, ...]:
            if left_s[job] > critical_s:
                return (0.0, -left_s[job], job.number)
            return (1.0, job.arrival_s + contention * (job.attained_s(at_s) + left_s[job]), job.number)

        return pick(sorted(jobs, key=urgency), devices)

    def _left_s(self, job: Job, at_s: float) -> float:
        """Turn time (s) until the end of a job: a forecast from its epochs, or `expected_s` if it has none."""
        if not job.spec.phases:
            return expected_s(job, at_s)
        name = job.spec.name
        if name not in self._forecasts:
            self._forecasts[name] = EpochForecast(job.spec.phases)
        forecast = self._forecasts[name]
        attained_s = job.attained_s(at_s)
        done = forecast.done(attained_s)
        begun_s = min(attained_s - forecast.done_s(done), forecast.epoch_s(min(done, forecast.epochs - 1)))
        return max(0.0, forecast.left_s(done) - begun_s)
