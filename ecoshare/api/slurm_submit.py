"""`slurm_submit`: a job file runs in an allocation that Slurm gives later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.base.disk import RUNS
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.option_fields import request_class

if TYPE_CHECKING:
    from ecoshare.base.disk import AnyPath
    from ecoshare.cluster.slurm_script import AllocationRequest


@request_class
class SubmitRequest:
    """Request for an allocation of Slurm. The fields are options of `ecoshare slurm submit`.

    Attributes:
        jobs: Path of a job file.
        nodes: Number of machines.
        gpus_per_node: Number of GPUs of each machine; None if the jobs use the processors.
        cpus_per_node: Number of processors of each machine; None for what the partition gives.
        time: Time limit as text, such as `4h` or `4:00:00`; None for that of the partition.
        partition: Partition; None for the default of the cluster.
        stop_before: Time before the limit, as text, at which jobs are asked to stop.
        name: Name of the Slurm job; None for that of the job file.
        runs: Folder that gets the run folder, which all machines share; None for the usual one.
        options: Options of `ecoshare run`.
        sbatch: Further options of `sbatch`.
    """

    jobs: AnyPath
    nodes: int = 1
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    time: str | None = None
    partition: str | None = None
    stop_before: str = "2min"
    name: str | None = None
    runs: AnyPath | None = None
    options: Sequence[str] = ()
    sbatch: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A Slurm job that was submitted.

    Attributes:
        job: ID of the Slurm job.
        runs: Folder that gets its run folder.
        notes: Notes for the user, one line each.
    """

    job: int
    runs: Path
    notes: tuple[str, ...] = ()


def batch_script(request: SubmitRequest) -> str:
    """Text of the batch script of a request. The job file is checked as `ecoshare run` checks it.

    Raises:
        InvalidJobFile: The job file has mistakes.
        UsageError: The fields contradict each other.
    """
    from ecoshare.cluster.slurm_script import script

    return script(allocation_of(request))


def submit(request: SubmitRequest) -> SlurmJob:
    """Submit the batch script of a request.

    Raises:
        InvalidJobFile: The job file has mistakes.
        UsageError: The fields contradict each other.
        UnfitEnvironment: Slurm is not installed, does not answer, or refuses the job.
    """
    from ecoshare.cluster.slurm_script import notes, script, submitted

    allocation = allocation_of(request)
    try:
        allocation.runs.mkdir(parents=True, exist_ok=True)  # Slurm writes its output there
    except OSError as error:
        raise UnfitEnvironment(f"{allocation.runs}: {error.strerror or error}", "choose another --runs") from error
    job = submitted(text=script(allocation))
    return SlurmJob(job, allocation.runs.absolute() / f"slurm-{job}", tuple(notes(allocation)))


def allocation_of(request: SubmitRequest, least_stop_s: float | None = None) -> AllocationRequest:
    """Allocation that a request asks for. The job file is checked as `ecoshare run` checks it.

    Args:
        request: The request.
        least_stop_s: Shortest `stop_before` (s); None for that of `ecoshare slurm submit`.

    Raises:
        InvalidJobFile: The job file has mistakes.
        UsageError: The fields contradict each other.
    """
    from ecoshare.cluster.slurm_script import AllocationRequest, check
    from ecoshare.jobs.load import load

    jobs, stop_s = Path(request.jobs), duration_option_s("--stop-before", request.stop_before)
    time_s = duration_option_s("--time", request.time) if request.time is not None else None
    load(jobs)  # mistakes are told now, and not when the allocation has come
    allocation = AllocationRequest(
        jobs=jobs,
        nodes=request.nodes,
        gpus_per_node=request.gpus_per_node,
        cpus_per_node=request.cpus_per_node,
        time_s=time_s,
        partition=request.partition,
        stop_s=stop_s,
        name=request.name or jobs.stem,
        runs=Path(request.runs if request.runs is not None else RUNS),
        options=request.options,
        sbatch=request.sbatch,
    )
    if least_stop_s is None:
        check(allocation)
    else:
        check(allocation, least_stop_s)
    return allocation


def duration_option_s(option: str, text: str) -> float:
    """Time (s) of an option, as `4h` or `4:00:00`.

    Raises:
        UsageError: It is no time.
    """
    from ecoshare.cluster.slurm_script import parse_time_s

    try:
        return parse_time_s(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
