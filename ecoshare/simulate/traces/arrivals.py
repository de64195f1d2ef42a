"""When generated jobs arrive."""

from __future__ import annotations

import numpy as np


def poisson_s(rng: np.random.Generator, jobs: int, gpu_s: float, gpus: int, load: float) -> list[float]:
    """Times of arrival, in seconds, of a Poisson process that begins with its first job.

    Args:
        gpu_s: Expected GPU-seconds of a job.
        gpus: There are.
        load: Share of them that the jobs keep busy in the long run; above 1 the queue grows for as long as jobs come.
    """
    gaps_s = rng.exponential(gpu_s / (gpus * load), jobs)
    gaps_s[0] = 0.0
    return [float(at_s) for at_s in np.cumsum(gaps_s)]
