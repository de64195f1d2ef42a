"""Predictors of the wait of a job that would be submitted now.

A provisioner asks one of them again and again while an allocation runs. `gradient_boosting.py` has the learned one.

Numbers of a queue at one moment, from which the wait of a new job is predicted.

All come from a `QueueSight`, so they are the same for a simulated queue and for the output of `squeue`. The two
strongest are waits in plans: jobs start in order, without backfill, as soon as enough GPUs are free. One plan lets each
job last until its limit, as Slurm's own estimate does (`squeue --start`). The other lets each job last the part of its
limit that past jobs took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import cos, pi, sin
from statistics import fmean
from typing import Protocol

from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.queue_sight import REMEMBERED, QueueSight, RunningJob, StartedJob, WaitingJob

RECENT = 20
"""Number of starts that recent waits are the mean of."""

LONGEST_S = 30 * 86400.0
"""Longest wait (s) and limit (s) in a feature: no partition lets a job run longer."""

NAMES = (
    "free / all GPUs",
    "waiting jobs",
    "GPUs that waiting jobs ask for / all",
    "GPU-seconds that waiting jobs may take / all GPUs (s)",
    "GPU-seconds that running jobs may still take / all GPUs (s)",
    "GPUs of the job / all",
    "limit of the job (s)",
    "wait in the plan by limits (s)",
    "wait in the plan by past use of limits (s)",
    "time that the first waiting job has waited (s)",
    "mean wait of the last starts (s)",
    "longest wait of the last starts (s)",
    "mean wait of the last starts of jobs at least as large (s)",
    "sine of the hour",
    "cosine of the hour",
    "weekday",
)
"""Meaning of each feature, in order."""

PLANNED = NAMES.index("wait in the plan by limits (s)")
EXPECTED = NAMES.index("wait in the plan by past use of limits (s)")


def features(sight: QueueSight, gpus: int, limit_s: float) -> tuple[float, ...]:
    """Features of a job of `gpus` GPUs and the time limit `limit_s`, if it were submitted now; as many as `NAMES`."""
    total = sight.gpus
    waits_s = [job.wait_s for job in sight.started]
    alike_s = [job.wait_s for job in sight.started if job.gpus >= gpus]
    day_s = sight.at_s % 86400.0
    hour = 2.0 * pi * day_s / 86400.0
    return (
        sight.free_gpus / total,
        float(len(sight.waiting)),
        sum(job.gpus for job in sight.waiting) / total,
        sum(job.gpus * min(job.limit_s, LONGEST_S) for job in sight.waiting) / total,
        sum(job.gpus * min(job.left_s, LONGEST_S) for job in sight.running) / total,
        gpus / total,
        min(limit_s, LONGEST_S),
        planned_wait_s(sight, gpus, 1.0),
        planned_wait_s(sight, gpus, sight.used_share),
        sight.waiting[0].waited_s if sight.waiting else 0.0,
        mean_s(waits_s[-RECENT:]),
        max(waits_s[-RECENT:], default=0.0),
        mean_s(alike_s[-RECENT:]),
        sin(hour),
        cos(hour),
        float(int(sight.at_s // 86400.0 + 3) % 7),  # 1970 began on a Thursday; 0 is Monday
    )


def planned_wait_s(sight: QueueSight, gpus: int, used_share: float) -> float:
    """Wait (s) of a job of `gpus` GPUs behind all that wait, in order and without backfill; at most `LONGEST_S`.

    Args:
        sight: The queue.
        gpus: GPUs that the job asks for.
        used_share: Part of its limit that each waiting job takes, and of the rest of its limit that each running one
            takes.
    """
    ends = [(job.left_s * used_share, job.gpus) for job in sight.running]
    heapify(ends)
    now_s, free = 0.0, sight.free_gpus
    for job_gpus, limit_s in [*((job.gpus, job.limit_s) for job in sight.waiting), (gpus, 0.0)]:
        while free < job_gpus:
            if not ends:  # more GPUs than there are
                return LONGEST_S
            end_s, released = heappop(ends)
            now_s, free = max(now_s, end_s), free + released
        if now_s >= LONGEST_S:
            return LONGEST_S
        free -= job_gpus
        heappush(ends, (now_s + limit_s * used_share, job_gpus))
    return now_s


def mean_s(waits_s: Sequence[float]) -> float:
    """Mean of waits (s); 0 for none."""
    return fmean(waits_s) if waits_s else 0.0


@dataclass(frozen=True, slots=True)
class WaitSample:
    """One wait of the past.

    The log alone is enough, as `sacct` prints it: with submissions, starts and ends, the queue at each submission is
    known. Each job is a sample. No simulated queue takes part, so a predictor learns the queue as it is, fair-share and
    all.

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


class WaitPredictor(Protocol):
    """Predictor of the wait in a queue."""

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Wait (s), 0 or more, that a job of `gpus` GPUs and this time limit should be given if submitted now."""
        ...


@dataclass(frozen=True, slots=True)
class Reactive:
    """Predictor that expects no wait, so the successor is submitted when its predecessor ends."""

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True, slots=True)
class AverageWait:
    """Mean wait of the last jobs that started and had at least as many GPUs.

    Attributes:
        count: Number of jobs in the mean.
    """

    count: int = 20

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Mean wait (s); 0 if no such job has started."""
        return mean_s([job.wait_s for job in sight.started if job.gpus >= gpus][-self.count :])


@dataclass(frozen=True, slots=True)
class PlannedWait:
    """Wait if all jobs last until their limits and start in order: close to Slurm's own estimate, which is pessimistic.

    Nothing is learned here.
    """

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Wait (s) in the plan by limits."""
        return planned_wait_s(sight, gpus, 1.0)
