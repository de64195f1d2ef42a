"""Log of a batch cluster, in any form. The first line of a file decides the form, never the name of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from ecoshare.contrib.chains.logs import philly_log, sacct_log, standard_workload_format
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.own_jobs import GPU
from ecoshare.simulation.traces import any_trace
from ecoshare.simulation.traces.sheet import lines_of


@dataclass(frozen=True, slots=True)
class BatchLog:
    """Jobs that a cluster was given.

    Attributes:
        jobs: Jobs in the order of submission.
        gpus: Number of GPUs, or of processors; None if the log has none.
        left_out: Number of jobs that never ran, or did not ask for the resource.
    """

    jobs: tuple[BatchJob, ...]
    gpus: int | None = None
    left_out: int = 0

    @property
    def most_held(self) -> int:
        """Largest number of GPUs that jobs held at once by their recorded waits: a bound below of `gpus`."""
        steps: list[tuple[float, int]] = []
        for job in self.jobs:
            if job.wait_s is not None and job.lasts_s > 0.0:
                start_s = job.submit_s + job.wait_s
                steps += [(start_s, job.gpus), (start_s + job.lasts_s, -job.gpus)]
        held, most = 0, 0
        for _, change in sorted(steps):  # at one moment, ends come first
            held += change
            most = max(most, held)
        return most


def read(path: Path, resource: str = GPU) -> BatchLog:
    """Log in a file: `sacct -p`, the Standard Workload Format, the Philly trace, or any trace of `ecoshare simulate`.

    Args:
        path: The file.
        resource: Trackable resource of Slurm that counts as GPUs.

    Raises:
        UsageError: The file cannot be read, is empty, or has no jobs.
        InvalidJobFile: The file has faults; the error lists them with line and column.
    """
    lines = lines_of(path)
    first = next(line for line in lines if line.strip())
    if "|" in first:
        jobs, left_out = sacct_log.read(str(path), lines, resource)
        return _log(jobs, None, left_out)
    if standard_workload_format.is_in_form(first):
        jobs, processors, left_out = standard_workload_format.read(str(path), lines)
        return _log(jobs, processors, left_out)
    if "cluster" in {cell.strip() for cell in first.split(",")}:
        return _log(philly_log.read(str(path), lines), None, 0)
    trace = any_trace.read(path)
    return _log([BatchJob(job.name, job.arrival_s, job.gpus, job.service_s, inf) for job in trace.jobs], None, 0)


def _log(jobs: Sequence[BatchJob], gpus: int | None, left_out: int) -> BatchLog:
    return BatchLog(tuple(sorted(jobs, key=lambda job: job.submit_s)), gpus, left_out)
