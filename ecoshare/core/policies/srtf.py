"""Shortest remaining time first, with preemption at iteration boundaries."""

from __future__ import annotations

import math
from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Srtf(Usual):
    """Policy that runs the job with the least remaining turn time first: the best mean JCT for known lengths.

    Source: SRTF of Salus (Yu and Chowdhury, MLSys 2020, section 4). The remaining time is unknown if a job has no
    `iterations` or has not shown its speed yet. Then the time that the job has had stands for it. For heavy-tailed
    lengths that is the expected remaining time (least attained service; Gu et al., "Tiresias", NSDI 2019). So a new job
    runs soon and shows its speed.
    """

    name: ClassVar[str] = "srtf"
    needs_places: ClassVar[bool] = True

    def order(self, job: Job, at_s: float) -> Key:
        """Expected remaining turn time (s), then iterations, the fewest first."""
        return (expected_s(job, at_s), math.inf if job.spec.iterations is None else job.spec.iterations)

    def drift(self, job: Job) -> float:
        """Change per second of `expected_s`: -1 if the remaining time is known, else +1."""
        return drift(job)


def drift(job: Job) -> float:
    """Change per second of `expected_s` while the job runs: -1 if the remaining time is known, else +1."""
    return 1.0 if job.remaining_s(job.told_s) is None else -1.0


def expected_s(job: Job, at_s: float) -> float:
    """Expected remaining turn time (s): the known time, or else the time that the job has had."""
    remaining_s = job.remaining_s(at_s)
    return job.attained_s(at_s) if remaining_s is None else remaining_s
