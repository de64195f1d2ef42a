"""Packed lanes in which the earliest job runs."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Pack(Usual):
    """Policy that runs as many jobs at once as fit. The earliest job of a lane has the turn; the others fill its gaps.

    The turn changes hands as rarely as possible, so least time is wasted. Jobs finish in the order of their arrival.
    This is the PACK policy of Salus (Yu and Chowdhury, MLSys 2020, section 4) with an order inside a lane.
    """

    name: ClassVar[str] = "pack"
    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)

    def rank(self, job: Job) -> float:
        """Order of arrival."""
        return job.number
