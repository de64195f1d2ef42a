"""What a policy is."""

from __future__ import annotations

from typing import ClassVar, Protocol

from ecoshare.core.records import Job, Lane


class Policy(Protocol):
    """Decides the order of jobs; never whether they fit, which is the safety condition's affair.

    All methods are pure: equal arguments, equal answers. Smaller comes first everywhere.

    Attributes:
        name: What the command line calls it.
        places: Most jobs in a lane, or None for the run's own setting.
        backfill: Whether a job may start before one that is ahead of it and does not fit.
    """

    name: ClassVar[str]
    places: ClassVar[int | None]
    backfill: ClassVar[bool]

    def order(self, job: Job) -> tuple[float, ...]:
        """Place of a waiting job in the queue. It must not change while the job waits."""
        ...

    def lane(self, lane: Lane) -> tuple[float, ...]:
        """Preference between lanes that could take a job."""
        ...

    def rank(self, job: Job) -> float:
        """Place of a job in the order of its lane's turn. Jobs of equal rank share the turn fairly."""
        ...
