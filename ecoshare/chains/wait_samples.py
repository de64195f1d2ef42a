"""Waits of the past, with the features of the queue at their beginnings: what a predictor is fitted to.

The log alone is enough, as `sacct` prints it: with submissions, starts and ends, the queue at each submission is known.
Each job is a sample. No simulated queue takes part, so a predictor learns the queue as it is, fair-share and all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ecoshare.chains.batch_job import BatchJob
from ecoshare.chains.queue_features import features
from ecoshare.chains.queue_sight import REMEMBERED, QueueSight, RunningJob, StartedJob, WaitingJob


@dataclass(frozen=True, slots=True)
class WaitSample:
    """One wait of the past.

    Attributes:
        features: Features of the queue and of the job at its submission, as in `queue_features.NAMES`.
        wait_s: Wait (s). For a job that still waited at the end of what is known, the time that it had waited.
    """

    features: tuple[float, ...]
    wait_s: float


def logged_samples(jobs: Sequence[BatchJob], gpus: int, until_s: float, step: int = 1) -> list[WaitSample]:
    """Samples from jobs that were submitted before `until_s`, with nothing that was unknown then.

    Args:
        jobs: Jobs of the log with recorded waits, in the order of submission. A job without a wait never started.
        gpus: Number of GPUs of the partition.
        until_s: End (s) of what is known. A job that still waits counts with the time that it has waited.
        step: Use each job at a place that `step` divides. The others are seen in the queue, and give no sample.
    """
    chosen = (job for place, job in enumerate(jobs) if place % step == 0 and job.submit_s < until_s)
    return [
        WaitSample(
            features(sight, job.gpus, job.limit_s),
            min(until_s - job.submit_s, float("inf") if job.wait_s is None else job.wait_s),
        )
        for job, sight in logged_sights(jobs, gpus, chosen)
    ]


def logged_sights(jobs: Sequence[BatchJob], gpus: int, at: Iterable[BatchJob]) -> Iterator[tuple[BatchJob, QueueSight]]:
    """Queue as it was at the submission of each job of `at`, without the job and those submitted after it.

    The order of waiting jobs is that of their submission, since a log does not have their priorities.

    Args:
        jobs: Jobs of the log with recorded waits, in the order of submission.
        gpus: Number of GPUs of the partition.
        at: Some of the jobs, in the same order.
    """
    past = _LoggedQueue(gpus)
    wanted = iter(at)
    following = next(wanted, None)
    for job in jobs:
        if following is None:
            return
        past.advance(job.submit_s)
        if job is following:
            yield job, past.sight(job.submit_s)
            following = next(wanted, None)
        past.submit(job)


class _LoggedQueue:
    """Queue of the past, from recorded submissions, starts and ends."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._waiting: dict[str, BatchJob] = {}
        self._running: dict[str, BatchJob] = {}
        self._coming: list[tuple[float, int, str]] = []  # heap of starts and ends; ends first at one moment
        self._last: deque[StartedJob] = deque(maxlen=REMEMBERED)
        self._ended, self._shares = 0, 0.0

    def submit(self, job: BatchJob) -> None:
        """Take a job."""
        self._waiting[job.name] = job
        if job.wait_s is not None:
            heappush(self._coming, (job.submit_s + job.wait_s, 1, job.name))
            self.advance(job.submit_s)

    def advance(self, to_s: float) -> None:
        """Let jobs start and end up to `to_s`."""
        while self._coming and self._coming[0][0] <= to_s:
            at_s, kind, name = heappop(self._coming)
            if kind:
                job = self._running[name] = self._waiting.pop(name)
                self._last.append(StartedJob(job.gpus, job.wait_s or 0.0))
                heappush(self._coming, (at_s + job.lasts_s, 0, name))
            else:
                job = self._running.pop(name)
                if job.limit_s < float("inf"):
                    self._ended += 1
                    self._shares += job.lasts_s / job.limit_s

    def sight(self, at_s: float) -> QueueSight:
        """Queue at the moment `at_s`, to which it was moved."""
        running = (
            RunningJob(job.gpus, job.submit_s + (job.wait_s or 0.0) + job.limit_s - at_s)
            for job in self._running.values()
        )
        waiting = (WaitingJob(job.gpus, job.limit_s, at_s - job.submit_s) for job in self._waiting.values())
        share = max(0.01, self._shares / self._ended) if self._ended else 1.0
        return QueueSight(at_s, self._gpus, tuple(running), tuple(waiting), tuple(self._last), share)
