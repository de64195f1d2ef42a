"""What most policies do alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from ecoshare.core.events import Config
from ecoshare.core.records import Job, Key, Lane


class Usual(ABC):
    """Fills the emptiest lane, lets others pass who do not fit, and gives the turn in the order of the queue.

    See `base.Policy` for what each of these means.
    """

    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = True
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def order(self, job: Job, at_s: float) -> Key:
        """Place of a job in the queue."""

    def drift(self, job: Job) -> float:
        """None."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """The emptiest, so that no lane idles while another has work waiting."""
        return (len(lane.jobs), lane.number)

    def rank(self, job: Job) -> float:
        """The first part of its place in the queue."""
        return self.order(job, job.told_s)[0]


class WithOptions(Usual):
    """Is made with the options of a run."""

    @abstractmethod
    def __init__(self, options: Mapping[str, float]) -> None:
        """Take those that are one's own; each has a default."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """With the options of a run."""
        return cls(dict(config.options))


class InRounds(WithOptions):
    """Chooses anew in each round who runs; see `base.RoundPolicy`."""

    round_s: float

    @abstractmethod
    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Those that run in the round that begins."""

    def order(self, job: Job, at_s: float) -> Key:
        """As arranged when the round began."""
        return (job.level,)
