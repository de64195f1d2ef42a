"""Output of `squeue` as a sight of the queue, for a live chain.

::

    squeue --all --array --noheader --states=PENDING,RUNNING --partition=gpu --Format=FORMAT

The last starts, and the part of their limits that jobs use, come from `sacct` (`sacct_log.py`). Without a log, the
running jobs are the last starts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.own_jobs import GPU, duration_s, moment_s, resource_count
from ecoshare.contrib.chains.queue_sight import REMEMBERED, QueueSight, RunningJob, StartedJob, WaitingJob
from ecoshare.knowledge.advisers.delimited import quoted
from ecoshare.simulation.traces.sheet import Row, Sheet

COLUMNS = ("JobArrayID", "State", "SubmitTime", "StartTime", "TimeLimit", "TimeLeft", "PriorityLong", "tres-alloc")
"""Fields of a listing, in order."""

FORMAT = ",".join(f"{name}:{255 if name == 'tres-alloc' else 40}" + "|" * (name != COLUMNS[-1]) for name in COLUMNS)
"""Value of squeue's option `--Format`. A field without a size would be cut at 20 characters."""


def sight(
    listing: str,
    *,
    gpus: int,
    at_s: float,
    past: Sequence[BatchJob] = (),
    leave_out: Collection[str] = (),
    resource: str = GPU,
) -> QueueSight:
    """Queue in a listing in the form of `FORMAT`. Jobs without the resource are left out.

    Args:
        listing: Output of squeue.
        gpus: Number of GPUs of the partition.
        at_s: Moment (s) of the listing on the cluster's clock, as `slurm_text.moment_s` reads it.
        past: Jobs of the log; those that have started give the last starts. Without any, running jobs give them.
        leave_out: Numbers of jobs to leave out, such as a successor that waits.
        resource: Trackable resource that counts as GPUs.

    Raises:
        InvalidJobFile: A line is in another form.
    """
    sheet = Sheet("squeue", listing.splitlines(keepends=True), "|", COLUMNS)
    running: list[RunningJob] = []
    started: list[tuple[float, int, float]] = []
    waiting: list[tuple[float, float, WaitingJob]] = []
    for row in sheet.rows():
        name, state, submit, start, limit, left, priority, tres = (cell.strip() for cell in row[1])
        count = resource_count(tres, resource)
        if count == 0 or name in leave_out:
            continue
        if state == "RUNNING":
            running.append(RunningJob(count, _known(sheet, row, "TimeLeft", duration_s(left))))
            submit_s = _known(sheet, row, "SubmitTime", moment_s(submit))
            start_s = _known(sheet, row, "StartTime", moment_s(start))
            started.append((start_s, count, max(0.0, start_s - submit_s)))
        elif state == "PENDING":
            submit_s = _known(sheet, row, "SubmitTime", moment_s(submit))
            limit_s = _known(sheet, row, "TimeLimit", duration_s(limit))
            key = -float(priority) if priority.isdecimal() else 0.0
            waiting.append((key, submit_s, WaitingJob(count, limit_s, max(0.0, at_s - submit_s))))
    sheet.finish()
    ordered = tuple(job for _, _, job in sorted(waiting, key=lambda each: each[:2]))
    logged = [(job.submit_s + job.wait_s, job.gpus, job.wait_s) for job in past if job.wait_s is not None]
    started = logged or started
    last = sorted(each for each in started if each[0] <= at_s)[-REMEMBERED:]
    return QueueSight(
        at_s,
        gpus,
        tuple(running),
        ordered,
        tuple(StartedJob(count, wait_s) for _, count, wait_s in last),
        used_share(past),
    )


def used_share(past: Sequence[BatchJob]) -> float:
    """Mean of time / limit of jobs that have ended, at least 0.01; 1 if none is known."""
    shares = [
        job.lasts_s / job.limit_s
        for job in past
        if job.wait_s is not None and job.run_s < float("inf") and job.limit_s < float("inf")
    ]
    return max(0.01, fmean(shares)) if shares else 1.0


def _known(sheet: Sheet, row: Row, column: str, value: float | None) -> float:
    if value is None:
        cell = COLUMNS.index(column)
        sheet.wrong(row, cell, f"expected a time, got {quoted(row[1][cell].strip())}")
        return 0.0
    return value
