"""Traces of Alibaba PAI: the 100,000 jobs of its simulator, and its table of tasks.

The jobs have a line of names. `num_gpu` counts GPUs, such as 0.25, of each of the `num_inst` instances:

::

    job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,wait_time,user_dur,group_dur,group_gpu_dur
    0,1,0,6.0,0.25,T4,1200,ae8ed1,3.0,1100.0,1150.0,1180.0

The table of tasks has none. `plan_gpu` is a percentage, so 25 is a quarter of a GPU. A job has a line for each role:

::

    4f057009a5d481acec67b088,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
    │                        │          │   │          │         │         plan_cpu, plan_mem, plan_gpu, gpu_type
    job_name                 task_name  │   status     start_time, end_time (s)
                                        inst_num

Both clocks are in seconds from a moment that is not told.

Source: Weng et al., "MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU Clusters",
NSDI 2022; alibaba/clusterdata, cluster-trace-gpu-v2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ecoshare.simulation.traces.cluster_jobs import UNFINISHED, WITHOUT_GPU, ClusterJobs, whole_gpus
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.traces.sheet import Row, Sheet

COLUMNS = ("job_id", "num_inst", "submit_time", "num_gpu", "duration")
"""Columns of the jobs in use."""

TASK_TABLE = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
TASK_COLUMNS = ("job_name", "inst_num", "start_time", "end_time", "plan_gpu")
"""Columns of the tasks in use."""

_STATUSES = ("Terminated", "Failed", "Running", "Waiting")


def is_task(cells: Sequence[str]) -> bool:
    """Whether a first line is one of the table of tasks, without names."""
    return len(cells) == len(TASK_TABLE) and cells[TASK_TABLE.index("status")].strip() in _STATUSES


def read(file: str, lines: Sequence[str]) -> Trace:
    """Jobs of the trace for PAI's simulator.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",")
    job_id, num_inst, submit_time, num_gpu, duration = sheet.columns(COLUMNS, "a trace of Alibaba PAI")
    jobs = ClusterJobs(file, "PAI")
    for row in sheet.rows():
        gpus, share = _gang(sheet, row, num_inst, _number_or_0(sheet, row, num_gpu))
        if not gpus:
            jobs.leave_out(WITHOUT_GPU)
            continue
        at_s, duration_s = sheet.number(row, submit_time), sheet.number(row, duration)
        jobs.add(sheet.name(row, job_id), at_s, duration_s, gpus, row[0], share)
    sheet.finish()
    return jobs.trace()


@dataclass(slots=True)
class _Job:
    """Tasks of a job so far: those that have a GPU, and whether one of them lacks a start or an end."""

    line: int
    gpus: int = 0
    parts: float = 0.0
    start_s: float = inf
    end_s: float = 0.0
    is_unfinished: bool = False


def read_tasks(file: str, lines: Sequence[str], names: Sequence[str] = ()) -> Trace:
    """Jobs of the table of tasks.

    All instances of a job are one gang, which lasts from the first start of its tasks to their last end. Each instance
    has the mean of their parts of a GPU, if these differ.

    Args:
        names: Names of the columns, `TASK_TABLE`; empty if the first line has them.

    Raises:
        InvalidJobFile: The file has faults; the error lists them.
    """
    sheet = Sheet(file, lines, ",", names)
    job_name, inst_num, start_time, end_time, plan_gpu = sheet.columns(TASK_COLUMNS, "a table of PAI's tasks")
    found: dict[str, _Job] = {}
    for row in sheet.rows():
        name = row[1][job_name].strip()
        job = found.get(name)
        if job is None:
            job = found[sheet.text(row, job_name)] = _Job(row[0])
        percent = _number_or_0(sheet, row, plan_gpu)
        if not percent:
            continue
        start_s, end_s = _number_or_0(sheet, row, start_time), _number_or_0(sheet, row, end_time)
        if not start_s or not end_s:
            job.is_unfinished = True
            continue
        gpus, share = _gang(sheet, row, inst_num, percent / 100.0)
        job.gpus += gpus
        job.parts += gpus * share
        job.start_s, job.end_s = min(job.start_s, start_s), max(job.end_s, end_s)
    sheet.finish()
    jobs = ClusterJobs(file, "PAI")
    for name, job in found.items():
        if job.is_unfinished:
            jobs.leave_out(UNFINISHED)
        elif not job.gpus:
            jobs.leave_out(WITHOUT_GPU)
        else:
            jobs.add(name, job.start_s, job.end_s - job.start_s, job.gpus, job.line, job.parts / job.gpus)
    return jobs.trace("a job arrives when it was launched, since when it was submitted is in another table")


def _gang(sheet: Sheet, row: Row, instances: int, gpus_each: float) -> tuple[int, float]:
    """Number of GPUs of all instances, and the part of each; PAI's simulator takes an empty number of them for 1."""
    if not gpus_each > 0.0:
        return 0, 0.0
    return whole_gpus(sheet.whole(row, instances) if row[1][instances].strip() else 1, gpus_each)


def _number_or_0(sheet: Sheet, row: Row, cell: int) -> float:
    """Number in a cell; 0 if it is empty."""
    return sheet.number(row, cell) if row[1][cell].strip() else 0.0
