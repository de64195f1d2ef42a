"""Log of a cluster, submitted to a simulated queue job by job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from ecoshare.chains.backfill_queue import BackfillQueue
from ecoshare.chains.batch_job import BatchJob


class QueueReplay:
    """Queue that gets the jobs of a log at their recorded submissions.

    Attributes:
        queue: The queue. Callers may submit and end jobs of their own in it.
    """

    def __init__(self, queue: BackfillQueue, jobs: Sequence[BatchJob], place: int = 0) -> None:
        """Replay from the job at `place` on.

        Args:
            queue: The queue.
            jobs: Jobs in the order of their submission; it is not copied.
            place: Index of the next job.
        """
        self.queue = queue
        self._jobs, self._place = jobs, place

    def copy(self) -> QueueReplay:
        """Replay in the same state, which goes its own way from here."""
        return QueueReplay(self.queue.copy(), self._jobs, self._place)

    def advance(self, to_s: float, watched: str | None = None) -> None:
        """Move the clock to `to_s`, or to the start of the job `watched` if that comes before.

        With an infinite `to_s` it stays at the last start or end.
        """
        queue = self.queue
        while watched is None or watched not in queue.started_s:
            arrival_s = self._jobs[self._place].submit_s if self._place < len(self._jobs) else inf
            end_s = queue.next_end_s
            following_s = min(arrival_s, end_s)
            if following_s > to_s or following_s == inf:
                queue.advance(to_s)
                return
            if end_s <= arrival_s:
                queue.advance(end_s)
            else:
                self._place += 1
                queue.submit(self._jobs[self._place - 1])

    def advance_to_start(self, name: str) -> float:
        """Move the clock to the start of a job that waits, and return it (s).

        Raises:
            ValueError: The job never starts: the log has ended, and no job runs.
        """
        self.advance(inf, name)
        if name not in self.queue.started_s:
            raise ValueError(f"{name} never starts")
        return self.queue.started_s[name]


def replayed(jobs: Sequence[BatchJob], queue: BackfillQueue) -> list[BatchJob]:
    """Jobs with the waits that they have in a simulated queue, in the order of the log."""
    replay = QueueReplay(queue, jobs)
    replay.advance(inf)
    started_s = queue.started_s
    return [replace(job, wait_s=started_s[job.name] - job.submit_s) for job in jobs]
