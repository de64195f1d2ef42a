"""How fast a job must be from now on, so that at its end it was not slower than its owner allows.

Pauses for the windows of others, turns that it had to wait for and slower settings are all wall time, so what was lost
is made up for later: who is behind gets fewer neighbours. Nobody may use up in advance what was gained.
"""

from __future__ import annotations

from ecoshare.core.records import Job

HORIZON_S = 60.0
"""Work that a job is taken to have left at least, where nobody knows how long it is."""


def least_speed(job: Job, iteration_s: float | None, lost_s: float = 0.0) -> float:
    """Speed over that alone, in (0, 1]; 0 for a job without a limit.

    By what was told last: what is made of it since then depends on who is beside it. Of a job that also evaluated
    nobody knows what that takes alone, and its limit is that of its speed now.

    Args:
        iteration_s: Of training, alone at the default setting; None where it is not known.
        lost_s: Of wall time that it has lost since then, or is about to lose.
    """
    limit = job.spec.slowdown
    if limit is None:
        return 0.0
    least = min(1.0, 1.0 / limit)
    if not iteration_s or job.usage.eval_iterations:
        return least
    done_s = job.usage.iterations * iteration_s
    left_s = max(done_s, HORIZON_S)
    if job.spec.iterations is not None:
        left_s = max(0, job.spec.iterations - job.usage.iterations) * iteration_s
    since_s = job.told_s if job.boundary_s is None else job.boundary_s
    wall_s = limit * (done_s + left_s) - (job.told_s - since_s) - lost_s
    return min(1.0, max(least, left_s / wall_s)) if wall_s > 0.0 else 1.0
