"""Traces for the benchmark of PAL: 64 GPUs, each job of one of the three measured classes, drawn by lot."""

from __future__ import annotations

import csv
from functools import lru_cache
from math import exp
from pathlib import Path
from random import Random

from ecoshare.simulation.traces.generate import PHILLY_FILE
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from scripts.pal_calibration import CLASSES

PHILLY_JOBS, PHILLY_JOBS_PER_H, LEAST_S = 160, 20.0, 60.0
"""Jobs of a trace in PAL's paper, their rate, and the least time (s) of a job there."""

HOUR_S = 3600.0

SIZES = (
    (1 * HOUR_S, ((1, 54), (6, 20), (8, 17), (12, 14), (16, 16))),
    (10 * HOUR_S, ((6, 10), (8, 11), (12, 10))),
    (100 * HOUR_S, ((4, 5),)),
    (float("inf"), ((16, 3),)),
)
"""Numbers of GPUs by the GPU-time of a job (below this many s), each with the number of such jobs in the trace of PAL's
authors (`blox_exp/workload/sia-160job-trace.csv` in hal-uw/blox-pal, MIT)."""


def invented(seed: int, jobs: int = 400, gpus: int = 64, load: float = 0.9) -> Trace:
    """Jobs of one GPU and gangs, equally many of each class, of 10 minutes to 5 hours (90 %)."""
    random, sizes, at_s = Random(seed), (1, 1, 1, 2, 4, 8), 0.0
    mean_gpu_s = sum(sizes) / len(sizes) * exp(8.2 + 0.5)
    made = []
    for number in range(jobs):
        at_s += random.expovariate(load * gpus / mean_gpu_s)
        service_s = random.lognormvariate(8.2, 1.0)
        job_class = random.choice(CLASSES)
        made.append(TraceJob(f"j{number}", job_class, at_s, (Phase(10, service_s / 10),), random.choice(sizes)))
    return Trace("made.csv", "made", tuple(made), "")


def philly(data: Path, seed: int) -> Trace:
    """160 jobs, 20 an hour, with the GPU-time of a job of Microsoft's Philly cluster, and gangs as in PAL's paper.

    The paper uses Sia's traces (Jayaram Subramanya et al., SOSP 2023). They draw jobs from Philly, put them into four
    categories by GPU-time, and give each category models and numbers of GPUs of its own. All work of a job is that of
    the Philly job: a gang takes its GPU-time / its GPUs.
    """
    random, at_s, made = Random(seed), 0.0, []
    gpu_times_s = _gpu_times_s(data / PHILLY_FILE)
    for number in range(PHILLY_JOBS):
        at_s += random.expovariate(PHILLY_JOBS_PER_H / HOUR_S)
        gpu_s = random.choice(gpu_times_s)
        sizes = next(sizes for below_s, sizes in SIZES if gpu_s < below_s)
        (gpus,) = random.choices([gpus for gpus, _ in sizes], [count for _, count in sizes])
        service_s = max(LEAST_S, gpu_s / gpus)
        made.append(TraceJob(f"j{number}", random.choice(CLASSES), at_s, (Phase(10, service_s / 10),), gpus))
    return Trace("philly.csv", "made", tuple(made), "")


@lru_cache(maxsize=1)
def _gpu_times_s(path: Path) -> tuple[float, ...]:
    with path.open(newline="") as file:
        return tuple(float(row["gpu_time"]) for row in csv.DictReader(file))
