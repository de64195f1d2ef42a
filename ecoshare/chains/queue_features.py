"""Numbers of a queue at one moment, from which the wait of a new job is predicted.

All come from a `QueueSight`, so they are the same for a simulated queue and for the output of `squeue`. The two
strongest are waits in plans: jobs start in order, without backfill, as soon as enough GPUs are free. One plan lets each
job last until its limit, as Slurm's own estimate does (`squeue --start`). The other lets each job last the part of its
limit that past jobs took.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import cos, pi, sin
from statistics import fmean

from ecoshare.chains.queue_sight import QueueSight

RECENT = 20
"""Number of starts that recent waits are the mean of."""

LONGEST_S = 30 * 86400.0
"""Longest wait (s) and limit (s) in a feature: no partition lets a job run longer."""

NAMES = (
    "free / all GPUs",
    "waiting jobs",
    "GPUs that waiting jobs ask for / all",
    "GPU-seconds that waiting jobs may take / all GPUs (s)",
    "GPU-seconds that running jobs may still take / all GPUs (s)",
    "GPUs of the job / all",
    "limit of the job (s)",
    "wait in the plan by limits (s)",
    "wait in the plan by past use of limits (s)",
    "time that the first waiting job has waited (s)",
    "mean wait of the last starts (s)",
    "longest wait of the last starts (s)",
    "mean wait of the last starts of jobs at least as large (s)",
    "sine of the hour",
    "cosine of the hour",
    "weekday",
)
"""Meaning of each feature, in order."""

PLANNED = NAMES.index("wait in the plan by limits (s)")
EXPECTED = NAMES.index("wait in the plan by past use of limits (s)")


def features(sight: QueueSight, gpus: int, limit_s: float) -> tuple[float, ...]:
    """Features of a job of `gpus` GPUs and the time limit `limit_s`, if it were submitted now; as many as `NAMES`."""
    total = sight.gpus
    waits_s = [job.wait_s for job in sight.started]
    alike_s = [job.wait_s for job in sight.started if job.gpus >= gpus]
    day_s = sight.at_s % 86400.0
    hour = 2.0 * pi * day_s / 86400.0
    return (
        sight.free_gpus / total,
        float(len(sight.waiting)),
        sum(job.gpus for job in sight.waiting) / total,
        sum(job.gpus * min(job.limit_s, LONGEST_S) for job in sight.waiting) / total,
        sum(job.gpus * min(job.left_s, LONGEST_S) for job in sight.running) / total,
        gpus / total,
        min(limit_s, LONGEST_S),
        planned_wait_s(sight, gpus, 1.0),
        planned_wait_s(sight, gpus, sight.used_share),
        sight.waiting[0].waited_s if sight.waiting else 0.0,
        mean_s(waits_s[-RECENT:]),
        max(waits_s[-RECENT:], default=0.0),
        mean_s(alike_s[-RECENT:]),
        sin(hour),
        cos(hour),
        float(int(sight.at_s // 86400.0 + 3) % 7),  # 1970 began on a Thursday; 0 is Monday
    )


def planned_wait_s(sight: QueueSight, gpus: int, used_share: float) -> float:
    """Wait (s) of a job of `gpus` GPUs behind all that wait, in order and without backfill; at most `LONGEST_S`.

    Args:
        sight: The queue.
        gpus: GPUs that the job asks for.
        used_share: Part of its limit that each waiting job takes, and of the rest of its limit that each running one
            takes.
    """
    ends = [(job.left_s * used_share, job.gpus) for job in sight.running]
    heapify(ends)
    now_s, free = 0.0, sight.free_gpus
    for job_gpus, limit_s in [*((job.gpus, job.limit_s) for job in sight.waiting), (gpus, 0.0)]:
        while free < job_gpus:
            if not ends:  # more GPUs than there are
                return LONGEST_S
            end_s, released = heappop(ends)
            now_s, free = max(now_s, end_s), free + released
        if now_s >= LONGEST_S:
            return LONGEST_S
        free -= job_gpus
        heappush(ends, (now_s + limit_s * used_share, job_gpus))
    return now_s


def mean_s(waits_s: Sequence[float]) -> float:
    """Mean of waits (s); 0 for none."""
    return fmean(waits_s) if waits_s else 0.0
