"""Shortest remaining service first: SRTF for jobs that need several GPUs."""

from __future__ import annotations

import math
from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.policies.srtf import drift, expected_s
from ecoshare.core.records import Job, Key


class Srsf(Usual):
    """The job that needs the least GPU-time to finish goes first.

    A large job holds up as many others as it takes GPUs, so its time counts that often. Source: Gu et al., "Tiresias",
    NSDI 2019, section 3.3 (SRSF). What is not known of a job is expected as in `srtf`.
    """

    name: ClassVar[str] = "srsf"

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining GPU-time, seconds; among those that have not shown it, fewest iterations first."""
        iterations = math.inf if job.spec.iterations is None else job.spec.iterations
        return (expected_s(job, at_s) * job.spec.gpus, iterations)

    def drift(self, job: Job) -> float:
        """What remains shrinks, on each of its GPUs."""
        return drift(job) * job.spec.gpus
