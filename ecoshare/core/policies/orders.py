"""Policies that order jobs one by one: by arrival, time held, priority, size, or the time that is left."""

from __future__ import annotations

import math
from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key, Lane


class Fifo(Usual):
    """One job in each lane, strictly in the order of arrival. A job that does not fit holds back the jobs behind it."""

    name: ClassVar[str] = "fifo"
    places: ClassVar[int | None] = 1
    preempts: ClassVar[bool] = False
    backfill: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)


class Fair(Usual):
    """Policy that runs as many jobs at once as fit, with equal shares of the time of their lane.

    This is the FAIR policy of Salus (Yu and Chowdhury, MLSys 2020, section 4). Lanes are kept equally full, so shares
    are as equal between lanes as the number of jobs allows.
    """

    name: ClassVar[str] = "fair"
    preempts: ClassVar[bool] = False
    rotates: ClassVar[bool] = True

    def order(self, job: Job, at_s: float) -> Key:
        """Time held, the least first; a new job has held none. Ties go by arrival."""
        return (job.attained_s(at_s),)

    def rank(self, job: Job) -> float:
        """Zero: all ranks are equal."""
        return 0.0


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


class Priority(Usual):
    """Policy that puts the highest priority first, in the queue and in the turn. Equal priorities share fairly.

    A job of lower priority keeps its place (its memory), and runs while jobs of higher priority load data or after they
    have ended.
    """

    name: ClassVar[str] = "priority"
    needs_places: ClassVar[bool] = True
    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Priority, the highest first. Ties go by arrival."""
        return (-job.spec.priority,)

    def lane(self, lane: Lane) -> Key:
        """Highest priority among the jobs of the lane, the lowest first."""
        return (max((job.spec.priority for job in lane.jobs.values()), default=-float("inf")),)


class Smallest(Usual):
    """Policy that runs the job with the fewest GPUs first and preempts larger jobs. It needs no lengths of jobs.

    This is the "smallest first" baseline of Tiresias (Gu et al., NSDI 2019, section 6.3). Large jobs may starve.
    """

    name: ClassVar[str] = "smallest"

    def order(self, job: Job, at_s: float) -> Key:
        """Number of GPUs."""
        return (job.spec.gpus,)


class Srtf(Usual):
    """Policy that runs the job with the least remaining turn time first: the best mean JCT for known lengths.

    Source: SRTF of Salus (Yu and Chowdhury, MLSys 2020, section 4). The remaining time is unknown if a job has no
    `iterations` or has not shown its speed yet. Then the time that the job has had stands for it. For heavy-tailed
    lengths that is the expected remaining time (least attained service; Gu et al., "Tiresias", NSDI 2019). So a new job
    runs soon and shows its speed.
    """

    name: ClassVar[str] = "srtf"
    needs_places: ClassVar[bool] = True

    def order(self, job: Job, at_s: float) -> Key:
        """Expected remaining turn time (s), then iterations, the fewest first."""
        return (expected_s(job, at_s), math.inf if job.spec.iterations is None else job.spec.iterations)

    def drift(self, job: Job) -> float:
        """Change per second of `expected_s`: -1 if the remaining time is known, else +1."""
        return drift(job)


def drift(job: Job) -> float:
    """Change per second of `expected_s` while the job runs: -1 if the remaining time is known, else +1."""
    return 1.0 if job.remaining_s(job.told_s) is None else -1.0


def expected_s(job: Job, at_s: float) -> float:
    """Expected remaining turn time (s): the known time, or else the time that the job has had."""
    remaining_s = job.remaining_s(at_s)
    return job.attained_s(at_s) if remaining_s is None else remaining_s


class Srsf(Usual):
    """Policy that runs the job with the least remaining GPU-time first.

    A large job holds up as many other jobs as it takes GPUs, so its time is multiplied by its GPUs. Unknown remaining
    times are estimated as in `srtf`. Source: Gu et al., "Tiresias", NSDI 2019, section 3.3 (SRSF).
    """

    name: ClassVar[str] = "srsf"
    needs_places: ClassVar[bool] = True

    def order(self, job: Job, at_s: float) -> Key:
        """Expected remaining GPU-time (s), then iterations, the fewest first."""
        iterations = math.inf if job.spec.iterations is None else job.spec.iterations
        return (expected_s(job, at_s) * job.spec.gpus, iterations)

    def drift(self, job: Job) -> float:
        """Drift of the expected turn time (see `srtf.drift`), multiplied by the GPUs of the job."""
        return drift(job) * job.spec.gpus
