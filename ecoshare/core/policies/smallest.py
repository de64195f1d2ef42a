"""Fewest GPUs first."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Smallest(Usual):
    """The job that takes the fewest GPUs goes first, preempting larger ones: no length needs to be known.

    The "smallest first" baseline of Tiresias (Gu et al., NSDI 2019, section 6.3). Large jobs may wait for ever.
    """

    name: ClassVar[str] = "smallest"

    def order(self, job: Job, at_s: float) -> Key:
        """Number of GPUs."""
        return (job.spec.gpus,)
