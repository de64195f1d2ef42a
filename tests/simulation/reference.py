"""Simplest simulator, for comparison: at every moment all jobs are placed anew, at no cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ecoshare.simulation.traces.job_trace import TraceJob


@dataclass
class Standing:
    """Job that has arrived and not ended."""

    job: TraceJob
    number: int
    left_s: float
    running: bool = False
    first_start_s: float = float("inf")


def jcts(
    jobs: tuple[TraceJob, ...], gpus: int, key: Callable[[Standing], tuple[float, ...]], preempts: bool, backfill: bool
) -> dict[str, float]:
    """JCT of each job. At each moment, jobs start in the order of `key` as long as they fit into the free GPUs."""
    coming = list(enumerate(jobs))
    active: list[Standing] = []
    done: dict[str, float] = {}
    now_s = 0.0
    while coming or active:
        ends = [now_s + each.left_s for each in active if each.running]
        next_s = min([*ends, *(job.arrival_s for _, job in coming[:1])])
        for each in active:
            if each.running:
                each.left_s -= next_s - now_s
        now_s = next_s
        for each in [each for each in active if each.running and each.left_s <= 1e-9]:
            active.remove(each)
            done[each.job.name] = now_s - each.job.arrival_s
        while coming and coming[0][1].arrival_s <= now_s:
            number, job = coming.pop(0)
            active.append(Standing(job, number, job.service_s))
        free = gpus
        if not preempts:
            free -= sum(each.job.gpus for each in active if each.running)
        for each in sorted(active, key=lambda each: (*key(each), each.job.arrival_s, each.number)):
            if each.running and not preempts:
                continue
            each.running = each.job.gpus <= free
            if each.running:
                free -= each.job.gpus
                each.first_start_s = min(each.first_start_s, now_s)
            elif not backfill:
                break
    return done
