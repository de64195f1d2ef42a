"""Time limits for the jobs of a trace that has none: a model of how users ask.

Users ask for more than they need. The time of a job / its limit is about uniform over many logs (Mu'alem and Feitelson,
"Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling", IEEE
TPDS 2001), and limits are a few round numbers (Tsafrir, Etsion and Feitelson, "Modeling User Runtime Estimates", JSSPP
2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ecoshare.chains.batch_job import BatchJob

ROUND_S = tuple(60.0 * minutes for minutes in (10, 30, 60, 120, 240, 480, 720, 1440, 2880, 4320, 7200, 10080))
"""Limits (s) that users ask for: 10 minutes to a week."""

LEAST_SHARE = 0.05
"""Least part of its limit that a job takes, before the limit is rounded up."""


def with_limits(jobs: Sequence[BatchJob], most_s: float, seed: int) -> list[BatchJob]:
    """Jobs with drawn limits of at most `most_s`, the limit of the partition. A longer job is cut off there."""
    random = Random(f"limits {seed}")
    return [replace(job, limit_s=_limit_s(job.run_s / random.uniform(LEAST_SHARE, 1.0), most_s)) for job in jobs]


def _limit_s(asked_s: float, most_s: float) -> float:
    return min(most_s, next((limit_s for limit_s in ROUND_S if limit_s >= asked_s), most_s))
