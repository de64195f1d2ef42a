"""Max-min fairness: the smallest share of GPU-time is as large as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ecoshare.contrib.policies.time_shares import Shares, with_spare
from ecoshare.core.records import Job


class MaxMin(Shares):
    """Equal GPU-time for all jobs, in rounds.

    Source: Narayanan et al., "Gavel", OSDI 2020, section 4.1 (least attained service as max-min fairness), on devices
    of one kind: level = max min_i g_i x_i. Here x_i is the share of time of a job with g_i GPUs.
    """

    name: ClassVar[str] = "max-min"

    def allocate(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[float]:
        """Shares of equal GPU-time, plus a part of the spare time."""
        gpus = [job.spec.gpus for job in jobs]
        level = min(devices / len(jobs), min(gpus))
        return with_spare([min(1.0, level / count) for count in gpus], gpus, devices)
