"""Base classes with the behaviour that most policies share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from ecoshare.core.events import Config
from ecoshare.core.records import Job, Key, Lane


class Usual(ABC):
    """Policy that fills an empty lane or the best fit, backfills, preempts, and gives turns in the order of the queue.

    See `base.Policy` for the attributes and methods.
    """

    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = True
    rotates: ClassVar[bool] = False
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def order(self, job: Job, at_s: float) -> Key:
        """Sort key of a job in the queue."""

    def drift(self, job: Job) -> float:
        """Zero: the order does not change while a job runs."""
        return 0.0

    def lane(self, lane: Lane) -> Key:
        """No preference: an empty lane first, so that no lane idles, and then the lane that the job fits best."""
        return ()

    def rank(self, job: Job) -> float:
        """First part of the sort key of the job in the queue."""
        return self.order(job, job.told_s)[0]


class WithOptions(Usual):
    """Policy with options."""

    @abstractmethod
    def __init__(self, options: Mapping[str, float]) -> None:
        """Policy with the given options. Each option has a default; options of other policies are ignored."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Policy with the options of a run."""
        return cls(dict(config.options))


class InRounds(WithOptions):
    """Policy that chooses the running jobs in each round; see `base.RoundPolicy`."""

    round_s: float

    @abstractmethod
    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Jobs that run in the round that begins."""

    def order(self, job: Job, at_s: float) -> Key:
        """Place in the arrangement of the present round."""
        return (job.level,)


def pick(jobs: Sequence[Job], devices: int) -> list[Job]:
    """First jobs that fit together on `devices` devices. A job that does not fit is passed by."""
    chosen = []
    for job in jobs:
        if job.spec.gpus <= devices:
            devices -= job.spec.gpus
            chosen.append(job)
    return chosen
