"""Equal time for everybody."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Lane


class Fair:
    """As many jobs at once as fit, with equal shares of their lane's time.

    The FAIR policy of Salus (Yu and Chowdhury, MLSys 2020, section 4). Lanes are kept equally full, so shares are as
    equal between lanes as jobs can be divided.
    """

    name: ClassVar[str] = "fair"
    places: ClassVar[int | None] = None
    backfill: ClassVar[bool] = True

    def order(self, job: Job) -> tuple[float, ...]:
        """Least time held first (a new job has held none), then order of arrival."""
        return (job.attained_s, job.arrival_s)

    def lane(self, lane: Lane) -> tuple[float, ...]:
        """The emptiest."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """All equal."""
        return 0.0
