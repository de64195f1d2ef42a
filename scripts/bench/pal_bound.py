"""Bounds of the gain that placement can bring on GPUs of different speeds.

The bounds keep what is not placement: the jobs of a round and their order. They leave out what makes placement hard.

`fastest`: each job runs as if all of its GPUs were the fastest of its class. No placement is better.

`ideal`: at each moment all running jobs are placed anew, without a cost, so that the sum of their remaining times is
least. A gang is as fast as the mean of its GPUs, not as the slowest. The best placement is then an assignment of jobs
to GPUs, which is solved exactly. A placement that knows the future could be a little better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

from ecoshare.simulation.traces.job_trace import Trace, TraceJob

Speeds = Mapping[str, Mapping[str, float]]
"""Speeds by device and class."""

_NEARLY_S = 1e-6


def fastest(speeds: Speeds) -> dict[str, dict[str, float]]:
    """Speeds of the same devices if each were the fastest of all for each class."""
    best = {job_class: max(of[job_class] for of in speeds.values()) for job_class in next(iter(speeds.values()))}
    return dict.fromkeys(speeds, best)


def ideal_jct_s(trace: Trace, speeds: Speeds, round_s: float) -> float:
    """Mean JCT (s) with the best placement at each moment; see the module.

    Args:
        trace: Jobs, in the order of their arrival.
        speeds: Speeds of all GPUs.
        round_s: Length of a round (s). The earliest jobs that fit are chosen when a round begins.
    """
    slow = {name: np.array([1.0 / of[name] for of in speeds.values()]) for name in next(iter(speeds.values()))}
    coming, left_s = list(reversed(trace.jobs)), {job.name: job.service_s for job in trace.jobs}
    live: list[TraceJob] = []
    chosen: list[TraceJob] = []
    now_s, round_at_s, jcts_s = 0.0, 0.0, []
    while coming or live:
        while coming and coming[-1].arrival_s <= now_s + _NEARLY_S:
            live.append(coming.pop())
        if live and (not chosen or now_s >= round_at_s - _NEARLY_S):
            chosen, round_at_s = _first(live, len(speeds)), now_s + round_s
        slowness = _assigned(chosen, left_s, slow)
        next_s = min((left_s[job.name] * slowness[job.name] for job in chosen), default=math.inf)
        next_s = min(next_s, coming[-1].arrival_s - now_s if coming else math.inf)
        next_s = min(next_s, round_at_s - now_s if chosen else math.inf)
        now_s += next_s
        for job in chosen:
            left_s[job.name] -= next_s / slowness[job.name]
        ended = [job for job in chosen if left_s[job.name] <= _NEARLY_S]
        jcts_s += [now_s - job.arrival_s for job in ended]
        chosen = [job for job in chosen if job not in ended]
        live = [job for job in live if job not in ended]
    return float(np.mean(jcts_s))


def _first(live: list[TraceJob], gpus: int) -> list[TraceJob]:
    """First jobs that fit together; a job that does not fit is passed by."""
    chosen = []
    for job in live:
        if job.gpus <= gpus:
            gpus -= job.gpus
            chosen.append(job)
    return chosen


def _assigned(chosen: list[TraceJob], left_s: Mapping[str, float], slow: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Slowness of each job under the assignment with the least sum of remaining times."""
    rows = [job for job in chosen for _ in range(job.gpus)]
    if not rows:
        return {}
    cost_s = np.array([left_s[job.name] / job.gpus * slow[job.job_class] for job in rows])
    slowness = dict.fromkeys((job.name for job in chosen), 0.0)
    for row, device in zip(*linear_sum_assignment(cost_s), strict=True):
        job = rows[row]
        slowness[job.name] += float(slow[job.job_class][device]) / job.gpus
    return slowness
