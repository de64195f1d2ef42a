"""Fill the lanes, and let the earliest job run."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.records import Job, Key, Lane


class Pack:
    """As many jobs at once as fit; in a lane the earliest has the turn and the others fill its gaps.

    Hands the turn over as seldom as can be, so it wastes least; jobs finish in the order of their arrival. This is
    the PACK policy of Salus (Yu and Chowdhury, MLSys 2020, section 4) with an order inside a lane.
    """

    name: ClassVar[str] = "pack"
    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = False
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return ()

    def drift(self, job: Job) -> float:
        """None."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """The emptiest, so that no lane idles while another has work waiting."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """Order of arrival."""
        return job.number
