"""One job of a batch queue, as its log has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchJob:
    """Job of a batch queue.

    Attributes:
        name: Name, unique in its log.
        submit_s: Submission (s) since 1970 on the clock of the log. Hours and weekdays are read from it, so a log in
            local time keeps its local hours.
        gpus: Number of GPUs that the job needs at once; processors in a log of a cluster without GPUs.
        run_s: Time (s) that the job runs if no limit ends it.
        limit_s: Time limit (s) that was asked for; infinite if there was none.
        user: User, or empty.
        partition: Partition or cluster, or empty.
        wait_s: Recorded wait (s) from submission to start; None if the log has none.
    """

    name: str
    submit_s: float
    gpus: int
    run_s: float
    limit_s: float
    user: str = ""
    partition: str = ""
    wait_s: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: A number is out of its range.
        """
        if self.gpus < 1 or not self.run_s >= 0.0 or not self.limit_s > 0.0:
            raise ValueError(f"a job needs a GPU, a time of 0 or more and a limit above 0: {self}")

    @property
    def lasts_s(self) -> float:
        """Time (s) that the job holds its GPUs: its own time, or its limit if that is shorter."""
        return min(self.run_s, self.limit_s)
