"""One job of a batch queue, as its log has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True, slots=True)
class BatchJob:
    """Job of a batch queue.

    Attributes:
        name: Name, unique in its log.
        submit_s: Submission (s) since 1970 on the clock of the log. Hours and weekdays are read from it, so a log in
            local time keeps its local hours.
        gpus: Number of GPUs that the job needs at once; processors in a log of a cluster without GPUs.
        run_s: Time (s) that the job runs if no limit ends it.
        limit_s: Time limit (s) that was asked for; infinite if there was none.
        user: User, or empty.
        partition: Partition or cluster, or empty.
        wait_s: Recorded wait (s) from submission to start; None if the log has none.
    """

    name: str
    submit_s: float
    gpus: int
    run_s: float
    limit_s: float
    user: str = ""
    partition: str = ""
    wait_s: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: A number is out of its range.
        """
        if self.gpus < 1 or not self.run_s >= 0.0 or not self.limit_s > 0.0:
            raise ValueError(f"a job needs a GPU, a time of 0 or more and a limit above 0: {self}")

    @property
    def lasts_s(self) -> float:
        """Time (s) that the job holds its GPUs: its own time, or its limit if that is shorter."""
        return min(self.run_s, self.limit_s)


ROUND_S = tuple(60.0 * minutes for minutes in (10, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 7200, 10080))
"""Limits (s) that users ask for: 10 minutes to a week."""

LEAST_SHARE = 0.05
"""Least part of its limit that a job takes, before the limit is rounded up."""


def with_limits(jobs: Sequence[BatchJob], most_s: float, seed: int) -> list[BatchJob]:
    """Jobs with drawn limits of at most `most_s`, the limit of the partition. A longer job is cut off there.

    Users ask for more than they need. The time of a job / its limit is about uniform over many logs (Mu'alem and
    Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
    Backfilling", IEEE TPDS 2001), and limits are a few round numbers (Tsafrir, Etsion and Feitelson, "Modeling User
    Runtime Estimates", JSSPP 2005).
    """
    random = Random(f"limits {seed}")
    return [replace(job, limit_s=_limit_s(job.run_s / random.uniform(LEAST_SHARE, 1.0), most_s)) for job in jobs]


def _limit_s(asked_s: float, most_s: float) -> float:
    return min(most_s, next((limit_s for limit_s in ROUND_S if limit_s >= asked_s), most_s))
