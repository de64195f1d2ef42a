"""State of a batch queue as any user sees it: the input of predictions.

A simulated queue (`backfill_queue.py`) and the output of `squeue` (`squeue_listing.py`) both give this value. It holds
nothing that a user of a Slurm cluster cannot read: limits, and not the times that jobs will really take.
"""

from __future__ import annotations

from dataclasses import dataclass

REMEMBERED = 100
"""Number of starts that a sight of the queue holds."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """Job that holds GPUs.

    Attributes:
        gpus: Number of GPUs.
        left_s: Time (s) until its limit ends it.
    """

    gpus: int
    left_s: float


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """Job that waits.

    Attributes:
        gpus: Number of GPUs that it asks for.
        limit_s: Time limit (s) that it asks for.
        waited_s: Time (s) since its submission.
    """

    gpus: int
    limit_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class StartedJob:
    """Job that has started, now or earlier.

    Attributes:
        gpus: Number of GPUs.
        wait_s: Time (s) from its submission to its start.
    """

    gpus: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class QueueSight:
    """Queue at one moment.

    Attributes:
        at_s: The moment (s), on the clock of `BatchJob.submit_s`.
        gpus: Number of GPUs of the partition.
        running: Jobs that hold GPUs, in any order.
        waiting: Jobs that wait, in the order of their priority.
        started: Last jobs that started, the latest one last.
        used_share: Mean of time / limit of past jobs, above 0 and at most 1.
    """

    at_s: float
    gpus: int
    running: tuple[RunningJob, ...]
    waiting: tuple[WaitingJob, ...]
    started: tuple[StartedJob, ...]
    used_share: float = 1.0

    @property
    def free_gpus(self) -> int:
        """Number of GPUs that no job holds."""
        return self.gpus - sum(job.gpus for job in self.running)
