"""AlloX: matching of jobs to places in the queues of the devices."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from ecoshare.core.commands import AskPlanner


def match(plan: AskPlanner) -> dict[str, float]:
    """Share of the time of each job that runs: 1 for a job that keeps its device, 1 / GPUs for the head of a queue.

    Source: Le et al., "AlloX", EuroSys 2020, section 4.1, as a linear assignment of n jobs to m devices x n places from
    the end of a queue, at the cost place x time. A gang counts as a job of one device. It runs for 1 / GPUs of the
    time, which pays for its other devices, as in Gavel's implementation. Jobs that are left out do not run.
    """
    fixed = [job for job in plan.jobs if job.keeps]
    loose = [job for job in plan.jobs if not job.keeps]
    devices = plan.devices - len(fixed)
    shares = {job.name: 1.0 for job in fixed}
    if not loose or devices <= 0:
        return shares
    times_s = np.array([job.needs_s for job in loose])
    places = np.repeat(np.arange(1, len(loose) + 1), devices)  # (n_loose * devices,)
    _, chosen = linear_sum_assignment(times_s[:, None] * places[None])
    # The job that is furthest from the end of a queue is at its head.
    heads: dict[int, tuple[int, str, int]] = {}
    for job, column in zip(loose, chosen.tolist(), strict=True):
        place, device = divmod(column, devices)
        heads[device] = max(heads.get(device, (-1, "", 1)), (place, job.name, job.gpus))
    shares.update({name: 1.0 / gpus for _, name, gpus in heads.values()})
    return shares
