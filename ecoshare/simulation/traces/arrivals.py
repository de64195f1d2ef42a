"""Arrival times of generated jobs."""

from __future__ import annotations

import numpy as np


def poisson_s(rng: np.random.Generator, jobs: int, gpu_s: float, gpus: int, load: float) -> list[float]:
    """Arrival times (s) of a Poisson process; the first job arrives at 0.

    Args:
        gpu_s: Expected GPU-seconds of a job.
        gpus: Number of GPUs.
        load: Share of the GPUs that the jobs keep busy in the long run. Above 1, the queue grows while jobs arrive.
    """
    gaps_s = rng.exponential(gpu_s / (gpus * load), jobs)
    gaps_s[0] = 0.0
    return [float(at_s) for at_s in np.cumsum(gaps_s)]
