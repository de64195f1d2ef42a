"""Traces of Gavel's simulator, and of Shockwave's, which derives from it: cells between tabs, no line of names.

Gavel has 10 cells: type of job, command, folder, argument for the steps, whether it needs data, total steps, GPUs,
priority, SLO, arrival (s). Shockwave has 12. The mode in which the batch size changes (static, accordion, gns) follows
the GPUs. The duration (s), total steps / speed at the first batch size, precedes the arrival.

Sources: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020;
Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning", NSDI 2023.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from pydantic import BaseModel, Field, PositiveInt, ValidationError

from ecoshare.base.plural import counted
from ecoshare.errors import UsageError
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulation.traces.measured_speeds import Speeds, read_json
from ecoshare.simulation.traces.sheet import Row, Sheet

_BATCH_SIZE = re.compile(r"\(batch size (\d+)\)$")


class Schedule(BaseModel):
    """Batch sizes of one job, epoch by epoch.

    ::

        {"jobs": [{"job": 0, "job_type": "LM (batch size 10)", "gpus": 1, "mode": "gns", "epochs": 23,
                   "samples_per_epoch": 59675, "batch_size_runs": [[10, 11], [20, 10], [40, 1], [10, 1]]}, ...]}
                                              11 epochs with 10 samples an iteration, then 10 with 20, ...

    The trace counts a job's steps at the batch size that its type names. Shockwave converts them to epochs, `steps /
    ceil(samples / batch size)` rounded up, and keeps that number when the batch size changes. The last epoch ends where
    the steps end. So a job that never changes does exactly the steps of its trace. A job that changes does the same
    part of its last epoch.

    Source: Zheng et al., "Shockwave", NSDI 2023; `_get_num_epochs` and `_scale_bs_and_iters` of its published
    scheduler.
    """

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


def read_schedules(path: Path) -> dict[int, Schedule]:
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


GAVEL = (
    "job type",
    "command",
    "folder",
    "steps argument",
    "needs data",
    "total steps",
    "GPUs",
    "priority",
    "SLO",
    "arrival",
)
SHOCKWAVE = (*GAVEL[:7], "mode", *GAVEL[7:9], "duration", "arrival")

_MODES = ("static", "accordion", "gns")

_TABLES = {"Gavel": "Gavel's simulation_throughputs.json", "Shockwave": "Shockwave's tacc_throughputs.json"}


def read(
    file: str, lines: Sequence[str], names: Sequence[str], speeds: Speeds | None, schedules: Path | None = None
) -> Trace:
    """Jobs of a trace of Gavel or Shockwave.

    Args:
        names: Columns of the form: `GAVEL` or `SHOCKWAVE`.
        speeds: Measured speeds of the jobs; required.
        schedules: File of the batch sizes of Shockwave's jobs; None if jobs keep their first batch size.

    Raises:
        UsageError: Speeds are missing, or the schedules belong to another trace.
        InvalidJobFile: The file has faults; the error lists them.
    """
    project = "Shockwave" if "mode" in names else "Gavel"
    if speeds is None:
        raise UsageError(
            f"{file} is a trace of {project}'s: it has the steps of its jobs, and not how long one takes",
            f"name a table of speeds with --speeds FILE, such as {_TABLES[project]}",
        )
    if schedules is not None and project == "Gavel":
        raise UsageError(f"{file} is a trace of Gavel's, in which batch sizes do not change", "leave --schedules out")
    known = None if schedules is None else read_schedules(schedules)
    sheet = Sheet(file, lines, "\t", names)
    jobs: list[TraceJob] = []
    kept = 0
    for place, row in enumerate(sheet.rows()):
        job_type, steps = sheet.text(row, names.index("job type")), sheet.whole(row, names.index("total steps"))
        gpus, priority = sheet.whole(row, names.index("GPUs")), sheet.whole(row, names.index("priority"), least=0)
        arrival_s = sheet.number(row, names.index("arrival"))
        mode = _mode(sheet, row, names.index("mode")) if "mode" in names else "static"
        parts: tuple[BatchSizePeriod, ...] = (BatchSizePeriod(job_type, steps),)
        if known is None:
            kept += mode != "static"
        elif steps and gpus:
            parts = _scheduled(sheet, row, known.get(place), (job_type, gpus, mode), steps)
        phases = _phases(sheet, row, parts, gpus, speeds)
        if not sheet.mistakes:
            jobs.append(TraceJob(str(place), job_type, arrival_s, phases, gpus, priority, line=row[0]))
    sheet.finish()
    if known is not None and len(known) != len(jobs):
        raise UsageError(
            f"{schedules} has {counted(len(known), 'schedule')}, and {file} has {counted(len(jobs), 'job')}"
        )
    note = f"speeds are those of {speeds.file} on {speeds.gpu_model}, the whole job's for its number of GPUs"
    if known is not None:
        note += f"; a job has the epochs of its steps at its first batch size, with the batch sizes of {schedules}"
    if kept:
        note += f"; jobs that keep their first batch size for lack of schedules: {kept}"
    return Trace(file, project, in_order(jobs), note)


def _mode(sheet: Sheet, row: Row, cell: int) -> str:
    mode = sheet.text(row, cell)
    if mode and mode not in _MODES:
        sheet.wrong(row, cell, f"expected {', '.join(_MODES[:-1])} or {_MODES[-1]}, got {mode!r}")
    return mode


def _scheduled(
    sheet: Sheet, row: Row, schedule: Schedule | None, job: tuple[str, int, str], steps: int
) -> tuple[BatchSizePeriod, ...]:
    """Parts of a job from its schedule; empty after a mistake.

    Args:
        job: Type, GPUs and mode of the job, which must equal those of the schedule.
    """
    if schedule is None:
        sheet.wrong(row, 0, "the schedules have no such job")
        return ()
    if (schedule.job_type, schedule.gpus, schedule.mode) != job:
        what = f"job {schedule.job}, {schedule.job_type}, {counted(schedule.gpus, 'GPU')}, {schedule.mode}"
        sheet.wrong(row, 0, f"the schedules have another one in its place: {what}")
        return ()
    try:
        return parts(schedule, job[0], steps)
    except ValueError as error:
        sheet.wrong(row, SHOCKWAVE.index("total steps"), str(error))
        return ()


def _phases(sheet: Sheet, row: Row, parts: Sequence[BatchSizePeriod], gpus: int, speeds: Speeds) -> tuple[Phase, ...]:
    """Phases of the parts of a job, with iteration times on the job's number of GPUs."""
    phases = []
    for part in parts:
        try:
            if gpus and part.job_type:
                iteration_s = 1.0 / speeds.alone(part.job_type, gpus)
                phases.append(Phase(part.iterations, iteration_s, part.epoch_iterations))
        except LookupError as error:
            sheet.wrong(row, 0, str(error))
            break
    return tuple(phases)
