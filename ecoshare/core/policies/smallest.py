"""Fewest GPUs first."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Key, Lane


class Smallest:
    """The job that takes the fewest GPUs goes first, preempting larger ones: no length needs to be known.

    The "smallest first" baseline of Tiresias (Gu et al., NSDI 2019, section 6.3). Large jobs may wait for ever.
    """

    name: ClassVar[str] = "smallest"
    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = True
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    def order(self, job: Job, at_s: float) -> Key:
        """Number of GPUs."""
        return (job.spec.gpus,)

    def drift(self, job: Job) -> float:
        """None."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """The emptiest."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """Number of GPUs."""
        return job.spec.gpus
