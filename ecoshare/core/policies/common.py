"""Base classes with the behaviour that most policies share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from ecoshare.core.events import Config
from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.records import Job, Key, Lane


class Usual(ABC):
    """Policy that fills an empty lane or the best fit, backfills, preempts, and gives turns in the order of the queue.

    See `base.Policy` for the other attributes and the methods.

    Attributes:
        needs_places: Whether the policy gives little if urgent jobs cannot take the places of others, as in its paper.
    """

    places: ClassVar[int | None] = None
    preempts: ClassVar[bool] = True
    rotates: ClassVar[bool] = False
    backfill: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ()
    needs_places: ClassVar[bool] = False

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


class ObjectivePolicy(Usual):
    """Policy that runs the job with the shortest remaining time, co-located with the best group for an objective.

    A job of unknown length is assumed to have as much time left as it has had. See `base.PackingPolicy`.
    """

    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Remaining turn time (s); the time that the job has had if the remaining time is unknown."""
        return (remaining_s(job),)

    def rank(self, job: Job) -> float:
        """Level of the job: members of the group first; the other jobs use the time that these leave."""
        return float(job.level)

    @abstractmethod
    def spent(self, forecast: ColocationForecast) -> float:
        """Cost per second of a device with this forecast; see `base.PackingPolicy`."""

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Energy (J) that one second of the job's work alone is worth."""
        return price


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


def remaining_s(job: Job) -> float:
    """Remaining turn time (s) as told last.

    An estimate since then would depend on the other jobs of the lane, so moving the job would change it.
    """
    left_s = job.remaining_s(job.told_s)
    return job.attained_s(job.told_s) if left_s is None else left_s
