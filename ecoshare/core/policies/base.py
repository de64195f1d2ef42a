"""What a policy is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from ecoshare.core.commands import PlanJob
from ecoshare.core.events import Device
from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.records import Job, Key, Lane


class Policy(Protocol):
    """Decides the order of jobs; never whether they fit, which is the safety condition's affair.

    Equal arguments, equal answers. Smaller comes first everywhere; equals go by arrival.

    Attributes:
        name: What the command line calls it.
        places: Most jobs in a lane, or None for the run's own setting.
        backfill: Whether a job may start before one that is ahead of it and does not fit.
        preempts: Whether those that run give up their places to those ahead of them, where they can be moved.
        options: Names of its parameters. One that has any is made by its class method `from_config(config)`.
    """

    name: ClassVar[str]
    places: ClassVar[int | None]
    backfill: ClassVar[bool]
    preempts: ClassVar[bool]
    options: ClassVar[tuple[str, ...]]

    def order(self, job: Job, at_s: float) -> Key:
        """Place of a job in the queue, and among those that run where places can be given up.

        That of a job that waits must not depend on the time.
        """
        ...

    def drift(self, job: Job) -> float:
        """By how much the first part of its order changes in a second while it runs; asked where `preempts` is true."""
        ...

    def lane(self, lane: Lane) -> Key:
        """Preference between lanes that could take a job."""
        ...

    def rank(self, job: Job) -> float:
        """Place of a job in the order of its lane's turn. Jobs of equal rank share the turn fairly."""
        ...


@runtime_checkable
class LevelPolicy(Protocol):
    """A policy whose order changes by itself: it moves jobs between levels (`Job.level`) as time goes by."""

    def changes_s(self, job: Job, at_s: float) -> float:
        """When a job's level changes if it goes on as it does now: running or waiting; infinite for never."""
        ...

    def change(self, job: Job, at_s: float) -> None:
        """Put it into the level where it belongs now."""
        ...


@runtime_checkable
class PlannedPolicy(Protocol):
    """A policy in rounds that asks a planner before one begins: for what is slow or needs a solver.

    Attributes:
        planner: Its name in `ecoshare/advisers/planners`.
        planned_by: Options that the planner must know.
    """

    planner: ClassVar[str]
    planned_by: tuple[tuple[str, float], ...]

    def question(self, jobs: Sequence[Job], devices: int, at_s: float) -> tuple[PlanJob, ...]:
        """What it is to be asked; nothing where the last answer will do."""
        ...

    def told(self, shares: Mapping[str, float]) -> None:
        """Its answer."""
        ...


@runtime_checkable
class RoundPolicy(Protocol):
    """A policy that chooses anew at the beginning of each round who runs.

    Where places can be given up, nobody else runs before the next round, which begins when all that run have ended, or
    after its time. Else those that were chosen go before the others in the turns of their lanes.

    Attributes:
        round_s: Seconds of a round.
    """

    round_s: float

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        """Those of the active jobs that should run in this round, the first first; they fit into so many devices."""
        ...


@runtime_checkable
class GangPlacementPolicy(Protocol):
    """A policy that knows where a job is how slow: it gets the free lanes where it is least slow.

    Of those where it is equally slow, a job gets the ones that it would get without this.

    Attributes:
        across: By how much a gang that spans several nodes counts as slower than one in a single node; a factor from 1.
    """

    across: float

    def meet(self, devices: Sequence[Device]) -> None:
        """All devices of the run; told once, before anything is asked."""
        ...

    def slowness(self, job: Job, lane: Lane) -> float:
        """Time for its work there, over that on a typical device. A gang is as slow as in the slowest of its lanes."""
        ...


@runtime_checkable
class ElasticPolicy(Protocol):
    """A policy that says how many devices each job has, whenever one comes or goes (`placement/elastic_placement.py`).

    Attributes:
        restart_s: What a job loses that is stopped and started again: it is resized or moved where more is gained.
    """

    restart_s: float

    def needs(self, jobs: Sequence[Job], at_s: float) -> list[float]:
        """Seconds that each needs on one device, of equal units where nobody knows; none below 0."""
        ...

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Devices of each: a whole number, at most `most`, or less than 1 for a place beside others.

        Args:
            share: Of a device where all its places are taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class NeighbourRate:
    """How a job does beside another one, in another lane of its device.

    Attributes:
        iterations: Done there and told.
        speed: Iterations in a second of its turn there, over those alone; None where one of the two is not known.
    """

    job: Job
    iterations: int
    speed: float | None


@runtime_checkable
class TrialPackingPolicy(Protocol):
    """A policy that tries jobs beside each other, where no device is empty, and undoes what does not pay.

    Others may share the lanes of two that are beside each other only once it is known that this pays.
    """

    def beside(self, job: Job, other: Job) -> Key | None:
        """Preference between those that a waiting job could be tried beside; None where it must not be."""
        ...

    def pays(self, one: Job, other: Job) -> bool:
        """Whether it is known that jobs like these gain beside each other."""
        ...

    def judge(self, first: NeighbourRate, newcomer: NeighbourRate) -> bool:
        """Whether the newcomer must give way; asked when there is news of one of two that a device has to itself."""
        ...


@runtime_checkable
class PackingPolicy(Protocol):
    """A policy that runs groups of jobs beside each other, chosen by what is expected of them (`placement/packer.py`).

    Of all groups with the job that is first in its order, the one is best in which what is spent is least for what the
    work done is worth. The others that run keep their places, and have the turn where a member of the group is away.
    """

    def spent(self, forecast: ColocationForecast) -> float:
        """In a second, by a device of which this is expected; positive."""
        ...

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Of a second of a job's work alone.

        Args:
            price: The joules that it is worth.
        """
        ...
