"""Steps of a placement strategy, which the scheduler carries out one by one.

They are tuples, because several are made for each event, and a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ecoshare.core.commands import Command
from ecoshare.core.records import Job, Lane


class Start(NamedTuple):
    """Start of a job in these lanes."""

    job: Job
    lanes: tuple[Lane, ...]


class GiveWay(NamedTuple):
    """Jobs that must stop, so that another job gets their devices or because their round is over.

    Attributes:
        jobs: Jobs that must stop.
        to: Job that gets their devices; None if there is none.
        reason: Reason in words, if it is neither of the two above.
    """

    jobs: list[Job]
    to: Job | None
    reason: str = ""


class Park(NamedTuple):
    """A job that is parked, so that another job gets its place.

    Attributes:
        job: Job that is parked.
        to: Job that gets its place; None if there is none.
        reason: Reason in words, if no job gets its place.
    """

    job: Job
    to: Job | None
    reason: str = ""


class RankLanes(NamedTuple):
    """Lanes in which the ranks of the jobs may have changed."""

    lanes: Collection[Lane]


class ReviewSettings(NamedTuple):
    """Devices on which the packing, and so the right setting, may have changed; all devices if none is named."""

    devices: tuple[str, ...] = ()


Step = Start | GiveWay | Park | RankLanes | ReviewSettings | Command
"""Step of a strategy. A command is passed on to the driver as it is."""
