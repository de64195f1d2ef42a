"""Equal time for everybody."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Key, Lane


class Fair:
    """As many jobs at once as fit, with equal shares of their lane's time.

    The FAIR policy of Salus (Yu and Chowdhury, MLSys 2020, section 4). Lanes are kept equally full, so shares are as
    equal between lanes as jobs can be divided.
    """

    name: ClassVar[str] = "fair"
    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = False
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    def order(self, job: Job, at_s: float) -> Key:
        """Least time held first (a new job has held none), then order of arrival."""
        return (job.attained_s(at_s),)

    def drift(self, job: Job) -> float:
        """What it has had counts when it waits again."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """The emptiest."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """All equal."""
        return 0.0
