"""Smallest first: the job with the fewest GPUs."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Smallest(Usual):
    """Policy that runs the job with the fewest GPUs first and preempts larger jobs. It needs no lengths of jobs.

    This is the "smallest first" baseline of Tiresias (Gu et al., NSDI 2019, section 6.3). Large jobs may starve.
    """

    name: ClassVar[str] = "smallest"

    def order(self, job: Job, at_s: float) -> Key:
        """Number of GPUs."""
        return (job.spec.gpus,)
