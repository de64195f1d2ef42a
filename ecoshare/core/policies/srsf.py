"""Shortest remaining service first: SRTF for jobs that need several GPUs."""

from __future__ import annotations

import math
from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.policies.srtf import drift, expected_s
from ecoshare.core.records import Job, Key


class Srsf(Usual):
    """Policy that runs the job with the least remaining GPU-time first.

    A large job holds up as many other jobs as it takes GPUs, so its time is multiplied by its GPUs. Unknown remaining
    times are estimated as in `srtf`. Source: Gu et al., "Tiresias", NSDI 2019, section 3.3 (SRSF).
    """

    name: ClassVar[str] = "srsf"
    needs_places: ClassVar[bool] = True

    def order(self, job: Job, at_s: float) -> Key:
        """Expected remaining GPU-time (s), then iterations, the fewest first."""
        iterations = math.inf if job.spec.iterations is None else job.spec.iterations
        return (expected_s(job, at_s) * job.spec.gpus, iterations)

    def drift(self, job: Job) -> float:
        """Drift of the expected turn time (see `srtf.drift`), multiplied by the GPUs of the job."""
        return drift(job) * job.spec.gpus
