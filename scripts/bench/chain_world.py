"""World that judges chains: clusters of the Philly trace at a chosen load, in a simulated queue, cut into weeks.

The trace is of clusters that had GPUs enough, and its weeks differ by a factor of five. So each week is levelled: jobs
are left out, or submitted again within half an hour, until the week asks for the chosen part of the GPUs. The hours of
the day, the sizes and the lengths stay those of the trace. The limits that jobs ask for are drawn, since the trace has
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from ecoshare.contrib.chains.logs import batch_log
from ecoshare.contrib.chains.logs.batch_job import BatchJob, with_limits
from ecoshare.contrib.chains.simulated_chain import BackfillQueue
from ecoshare.simulation.traces import generate
from scripts.bench.benchmarking import median

DAY_S, WEEK_S = 86400.0, 7 * 86400.0
CLUSTERS = ("6214e9", "ee9e8c", "103959", "6c71a0")
"""Clusters with over 1,000 jobs and at least ten weeks of similar demand; chosen by demand, before any chain ran."""

TRAINING_PART = 2 / 3
"""Part of the weeks that come before the held-back ones."""

LEAST_DEMAND = 0.5
"""Weeks at both ends of a trace with less demand than this part of the median are left out."""

SIZE_BONUS_S = 12 * 3600.0
"""Age (s) that a job of all GPUs has at its submission; smaller ones have their part of it. No rule knows of it: plans
and replays are first come, first served, so the judge's queue is another one than theirs."""

APART_S = 1800.0
"""Largest time (s) between a job and a copy of it."""


@dataclass(frozen=True)
class World:
    """Partition with its jobs.

    Attributes:
        name: Name for messages.
        gpus: Number of GPUs.
        limit_s: Limit (s) of the partition.
        jobs: Jobs in the order of submission.
        weeks_s: Begin (s) of each week, and the end of the last one.
    """

    name: str
    gpus: int
    limit_s: float
    jobs: tuple[BatchJob, ...]
    weeks_s: tuple[float, ...]

    @property
    def first_held_back(self) -> int:
        """Index of the first held-back week."""
        return round((len(self.weeks_s) - 1) * TRAINING_PART)

    def queue(self) -> BackfillQueue:
        """Empty queue of the partition."""
        return BackfillQueue(self.gpus, size_bonus_s=SIZE_BONUS_S)


def read_clusters(data: Path) -> dict[str, list[BatchJob]]:
    jobs = batch_log.read(data / generate.PHILLY_FILE).jobs
    return {name: [job for job in jobs if job.partition == name] for name in CLUSTERS}


def world(name: str, jobs: Sequence[BatchJob], load: float, limit_s: float, seed: int) -> World:
    """World of a cluster in which each week asks for `load` of all GPUs."""
    limited = with_limits(jobs, limit_s, seed)
    first_s = limited[0].submit_s // DAY_S * DAY_S
    weeks: list[list[BatchJob]] = []
    for job in limited:
        place = int((job.submit_s - first_s) // WEEK_S)
        weeks.extend([] for _ in range(place + 1 - len(weeks)))
        weeks[place].append(job)
    demands = [demand(week) for week in weeks]
    usual = median(demands)
    enough = [place for place, each in enumerate(demands) if each >= LEAST_DEMAND * usual]
    begin, end = enough[0], enough[-1] + 1
    gpus = max(round(median(demands[begin:end])), *(job.gpus for job in limited))
    random = Random(f"level {name} {seed}")
    levelled = [
        job
        for place in range(begin, end)
        for job in level(weeks[place], load * gpus / demands[place], first_s + (place + 1) * WEEK_S, random)
    ]
    return World(
        f"{name}, load {load:g}, {limit_s / 3600.0:g} h",
        gpus,
        limit_s,
        tuple(sorted(levelled, key=lambda job: job.submit_s)),
        tuple(first_s + place * WEEK_S for place in range(begin, end + 1)),
    )


def level(jobs: Sequence[BatchJob], factor: float, end_s: float, random: Random) -> list[BatchJob]:
    """Jobs of a week, each `factor` times on average; copies are named after their job and stay before `end_s`."""
    found = []
    for job in jobs:
        copies = int(factor) + (random.random() < factor % 1.0)
        for copy in range(copies):
            later_s = random.uniform(0.0, min(APART_S, end_s - job.submit_s)) if copy else 0.0
            found.append(replace(job, name=f"{job.name} {copy}", submit_s=job.submit_s + later_s))
    return found


def demand(jobs: Sequence[BatchJob]) -> float:
    """GPUs that the jobs of a week keep busy on average."""
    return sum(job.gpus * job.lasts_s for job in jobs) / WEEK_S
