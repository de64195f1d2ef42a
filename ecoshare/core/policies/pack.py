"""Fill the lanes, and let the earliest job run."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Pack(Usual):
    """As many jobs at once as fit; in a lane the earliest has the turn and the others fill its gaps.

    Hands the turn over as seldom as can be, so it wastes least; jobs finish in the order of their arrival. This is
    the PACK policy of Salus (Yu and Chowdhury, MLSys 2020, section 4) with an order inside a lane.
    """

    name: ClassVar[str] = "pack"
    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)

    def rank(self, job: Job) -> float:
        """Order of arrival."""
        return job.number
