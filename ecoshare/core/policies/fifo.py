"""First in, first out: the baseline without sharing."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Fifo(Usual):
    """One job in each lane, strictly in the order of arrival. A job that does not fit holds back the jobs behind it."""

    name: ClassVar[str] = "fifo"
    places: ClassVar[int | None] = 1
    preempts: ClassVar[bool] = False
    backfill: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)
