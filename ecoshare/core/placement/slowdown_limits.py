"""Slowdown limits: how fast a job must be from now on, so that at its end it has kept its limit.

Pauses for the windows of other jobs, waits for the turn and slower settings all count as wall time. A job makes up for
lost time later: a job behind its limit gets fewer neighbours. No job may use up in advance the time that it gained.
"""

from __future__ import annotations

from ecoshare.core.records import Job

HORIZON_S = 60.0
"""Least work (s alone) that a job of unknown length is assumed to have left."""


def least_speed(job: Job, iteration_s: float | None, lost_s: float = 0.0) -> float:
    """Least relative speed that a job must keep, in (0, 1]; 0 for a job without a limit.

    The value follows from the usage that was told last, because the progress since then depends on the neighbours. It
    is 1 / limit, whatever the job lost before, if `iteration_s` is unknown or the job did inference iterations: their
    time alone is unknown.

    Args:
        job: Job with or without a slowdown limit.
        iteration_s: Time (s) of a training iteration alone at the default setting; None if unknown.
        lost_s: Wall time (s) that the job has lost since then, or is about to lose.
    """
    limit = job.spec.slowdown_limit
    if limit is None:
        return 0.0
    least = min(1.0, 1.0 / limit)
    if not iteration_s or job.usage.eval_iterations:
        return least
    done_s = job.usage.iterations * iteration_s
    left_s = max(done_s, HORIZON_S)
    if job.spec.iterations is not None and not job.exceeds_its_length:
        left_s = max(0, job.spec.iterations - job.usage.iterations) * iteration_s
    since_s = job.told_s if job.boundary_s is None else job.boundary_s
    wall_s = limit * (done_s + left_s) - (job.told_s - since_s) - lost_s
    return min(1.0, max(least, left_s / wall_s)) if wall_s > 0.0 else 1.0
