"""Schedules of batch sizes for Shockwave's jobs, epoch by epoch: a JSON file beside the trace.

::

    {"jobs": [{"job": 0, "job_type": "LM (batch size 10)", "gpus": 1, "mode": "gns", "epochs": 23,
               "samples_per_epoch": 59675, "batch_size_runs": [[10, 11], [20, 10], [40, 1], [10, 1]]}, ...]}
                                          11 epochs with 10 samples an iteration, then 10 with 20, ...

The trace counts a job's steps at the batch size that its type names. Shockwave converts them to epochs, `steps /
ceil(samples / batch size)` rounded up, and keeps that number when the batch size changes. The last epoch ends where the
steps end. So a job that never changes does exactly the steps of its trace. A job that changes does the same part of its
last epoch.

Source: Zheng et al., "Shockwave", NSDI 2023; `_get_num_epochs` and `_scale_bs_and_iters` of its published scheduler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from pydantic import BaseModel, Field, PositiveInt, ValidationError

from ecoshare.common.plural import counted
from ecoshare.errors import UsageError
from ecoshare.simulation.traces.measured_speeds import read_json

_BATCH_SIZE = re.compile(r"\(batch size (\d+)\)$")


class Schedule(BaseModel):
    """Batch sizes of one job, epoch by epoch."""

    job: int
    job_type: str
    gpus: int
    mode: str
    epochs: PositiveInt
    samples_per_epoch: PositiveInt
    batch_size_runs: list[tuple[PositiveInt, PositiveInt]] = Field(min_length=1)


class _File(BaseModel):
    jobs: list[Schedule]


@dataclass(frozen=True, slots=True)
class BatchSizePeriod:
    """Iterations of a job at one batch size."""

    job_type: str
    iterations: int
    epoch_iterations: int | None = None


def read(path: Path) -> dict[int, Schedule]:
    """Schedules, keyed by the place of their job in the trace, from 0.

    Raises:
        UsageError: The file cannot be read, or has another form.
    """
    try:
        jobs = _File.model_validate(read_json(path)).jobs
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path} has no schedules of batch sizes: {where}: {first['msg']}") from error
    found = {schedule.job: schedule for schedule in jobs}
    if len(found) < len(jobs):
        raise UsageError(f"{path} has two schedules of one job")
    return found


def parts(schedule: Schedule, job_type: str, total_steps: int) -> tuple[BatchSizePeriod, ...]:
    """Iterations of a job, one period for each batch size of its schedule.

    Args:
        schedule: Schedule of the job.
        job_type: Type of the job in the trace, which names the first batch size.
        total_steps: Steps of the job in the trace, at the first batch size.

    Raises:
        ValueError: The type names no batch size, or schedule and trace differ in length.
    """
    match = _BATCH_SIZE.search(job_type)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{job_type!r} names no batch size")
    steps_per_epoch = ceil(schedule.samples_per_epoch / int(match[1]))
    epochs = ceil(total_steps / steps_per_epoch)
    planned = sum(count for _, count in schedule.batch_size_runs)
    if planned != epochs:
        raise ValueError(
            f"{counted(total_steps, 'step')} make {counted(epochs, 'epoch')} of {steps_per_epoch}, "
            f"and its schedule has {planned}"
        )
    last = total_steps - (epochs - 1) * steps_per_epoch
    found = []
    for place, (batch_size, count) in enumerate(schedule.batch_size_runs, 1):
        each = ceil(schedule.samples_per_epoch / batch_size)
        iterations = count * each
        if place == len(schedule.batch_size_runs):
            iterations -= each - ceil(last * each / steps_per_epoch)
        found.append(BatchSizePeriod(_BATCH_SIZE.sub(f"(batch size {batch_size})", job_type), iterations, each))
    return tuple(found)
