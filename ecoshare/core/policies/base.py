"""Protocols of scheduling policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from ecoshare.base.device import Device
from ecoshare.core.commands import PlanJob
from ecoshare.core.placement.colocation_estimates import ColocationForecast
from ecoshare.core.records import Job, Key, Lane


class Policy(Protocol):
    """Order of the jobs. The safety condition, not the policy, decides whether a job fits.

    Methods must be deterministic: equal arguments give equal answers. Smaller keys go first everywhere. Ties go by
    arrival.

    Attributes:
        name: Name on the command line.
        places: Most jobs in a lane; None for the number that the run sets.
        backfill: Whether a job may start before a job that is ahead of it and does not fit.
        preempts: Whether running jobs that can be moved give up their places to jobs ahead of them.
        rotates: Whether jobs take turns in the places of a device, if there are more jobs than places. Otherwise the
            order decides which jobs have a place.
        options: Names of the parameters of the policy. A class method `from_config(config)`, if there is one, makes the
            policy.
    """

    name: ClassVar[str]
    places: ClassVar[int | None]
    backfill: ClassVar[bool]
    preempts: ClassVar[bool]
    rotates: ClassVar[bool]
    options: ClassVar[tuple[str, ...]]

    def order(self, job: Job, at_s: float) -> Key:
        """Sort key of a job in the queue and, for preemption, among the running jobs.

        The key of a waiting job must not depend on the time.
        """
        ...

    def drift(self, job: Job) -> float:
        """Change per second of the first part of `order` while the job runs. Called only if `preempts` is true."""
        ...

    def lane(self, lane: Lane) -> Key:
        """Sort key of a lane that could take a job. Among equal lanes an empty one goes first, then the best fit.

        Among several empty lanes, the lane of the device with the fewest jobs goes first.
        """
        ...

    def rank(self, job: Job) -> float:
        """Rank of a job for the turn of its lane. Jobs of equal rank share the turn fairly."""
        ...


@runtime_checkable
class LevelPolicy(Protocol):
    """Policy that moves jobs between levels (`Job.level`) as time goes by."""

    def changes_s(self, job: Job, at_s: float) -> float:
        """Time (s) at which the level of a job changes if the job goes on running or waiting; infinity for never."""
        ...

    def change(self, job: Job, at_s: float) -> None:
        """Put a job into the level where it belongs now."""
        ...


@runtime_checkable
class PlannedPolicy(Protocol):
    """Policy in rounds that asks a planner before a round begins, because the plan is slow or needs a solver.

    Attributes:
        planner: Name of the planner; see `ecoshare/knowledge/advisers/planners.py`.
        planned_by: Options for the planner, as (name, value) pairs.
    """

    planner: ClassVar[str]
    planned_by: tuple[tuple[str, float], ...]

    def question(self, jobs: Sequence[Job], devices: int, at_s: float) -> tuple[PlanJob, ...]:
        """Jobs to plan for; empty if the last answer still holds."""
        ...

    def told(self, shares: Mapping[str, float]) -> None:
        """Note the answer of the planner: the share of time of each job."""
        ...


@runtime_checkable
class RoundPolicy(Protocol):
    """Policy that chooses the jobs of each round when the round begins.

    With preemption, no other job runs in the round, unless the policy is a `FillingPolicy`. The next round begins after
    `round_s`, or earlier when all running jobs have ended. Without preemption, the chosen jobs go before the other jobs
    in the turns of their lanes.

    Attributes:
        round_s: Length of a round (s).
    """

    round_s: float

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        """Jobs that should run in this round, in order. Together they need at most `devices` devices."""
        ...


@runtime_checkable
class FillingPolicy(Protocol):
    """Policy in rounds with preemption that gives free devices to waiting jobs at once, and not when a round begins."""

    def fill(self, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        """Waiting jobs that should start now, in order. Together they need at most `devices` devices, which are free.

        Args:
            jobs: All waiting jobs, in the order of arrival. None of them was chosen for this round.
            devices: Number of free devices.
            at_s: Time (s) in the run.
        """
        ...


@runtime_checkable
class GangPlacementPolicy(Protocol):
    """Policy that knows how slow each job is on each device. A job gets the free lanes where it is least slow.

    Among lanes of equal slowness, `Policy.lane` decides.

    Attributes:
        across: Slowness of a gang that spans several nodes / slowness of the same gang in one node, at least 1.
    """

    across: float

    def meet(self, devices: Sequence[Device]) -> None:
        """Note all devices of the run. Called once, before any other method."""
        ...

    def slowness(self, job: Job, lane: Lane) -> float:
        """Time of the job in the lane / time on a typical device. A gang is as slow as in its slowest lane."""
        ...


@runtime_checkable
class MovingPolicy(GangPlacementPolicy, Protocol):
    """Policy in rounds that moves running jobs to less slow lanes when a round begins, with preemption.

    `placement/strategies/round_placement.py` chooses the lanes.

    Attributes:
        move_s: Time (s) that a stop and a start cost. Lanes are exchanged only if the jobs gain more than that for each
            running job that moves; infinity for never.
    """

    move_s: float


@runtime_checkable
class ElasticPolicy(Protocol):
    """Policy that sets the number of devices of each job whenever a job comes or goes.

    `placement/strategies/elastic_placement.py` places the jobs.

    Attributes:
        restart_s: Time (s) that a job loses when it is stopped and started again. A job is resized or moved only if it
            gains more than that.
    """

    restart_s: float

    def needs(self, jobs: Sequence[Job], at_s: float) -> list[float]:
        """Time (s) that each job needs on one device, at least 0. If no time is known, all needs are equal."""
        ...

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Width of each job: a whole number of devices, or less than 1 for a place on a shared device.

        Args:
            needs: Time (s) that each job needs on one device.
            devices: Number of devices.
            share: Part of a device that a job has if all places of the device are taken.
            most: Most devices that each job can use.
        """
        ...


@dataclass(frozen=True, slots=True)
class NeighbourRate:
    """Progress of a job beside a neighbour in another lane of its device.

    Attributes:
        job: The job.
        iterations: Number of iterations that the job has done beside the neighbour.
        speed: Relative speed: rate beside the neighbour / rate alone, each per second of turn time; None if either is
            unknown.
    """

    job: Job
    iterations: int
    speed: float | None


@runtime_checkable
class TrialPackingPolicy(Protocol):
    """Policy that co-locates two jobs on trial if no device is empty, and undoes a packing that does not pay.

    More jobs may enter the lanes of the two only once it is known that their packing pays.
    """

    def beside(self, job: Job, other: Job) -> Key | None:
        """Sort key of `other` as a neighbour for a waiting job; None if the two must not be co-located."""
        ...

    def pays(self, one: Job, other: Job) -> bool:
        """Whether jobs of these classes are known to gain from co-location."""
        ...

    def judge(self, first: NeighbourRate, newcomer: NeighbourRate) -> bool:
        """Whether the newcomer must give way. Called when one of two co-located jobs has made progress."""
        ...


@runtime_checkable
class PackingPolicy(Protocol):
    """Policy that packs: it co-locates groups of jobs, chosen by a forecast of each group (`placement/packer.py`).

    Every group has the job that is first in `order`. The best group has the least ratio of `spent` to the `worth` of
    the work done. The other running jobs keep their places; they have the turn while a member of the group is away.
    """

    def spent(self, forecast: ColocationForecast) -> float:
        """Cost per second of a device with this forecast; positive, in the unit of the objective."""
        ...

    def worth(self, job: Job, price: float, at_s: float) -> float:
        """Worth of one second of a job's work alone, in the unit of the objective.

        Args:
            job: The job.
            price: Energy (J) that the second of work is worth.
            at_s: Present time (s).
        """
        ...
