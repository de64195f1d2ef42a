"""Slurm's commands for a chain of allocations: its queue, its log, submissions and cancellations."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from ecoshare.cluster.slurm_script import asked, fields, submitted
from ecoshare.contrib.chains import own_jobs
from ecoshare.contrib.chains.logs import sacct_log, squeue_listing
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.own_jobs import GPU, OwnJob, duration_s, resource_count
from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.errors import UnfitEnvironment, did_you_mean

CPU = "cpu"
"""Trackable resource of jobs that use the processors."""

LOG_DAYS = 60
"""Days of the log that predictions are made from."""

_OF_ALLOCATIONS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")
"""Variables that Slurm sets in an allocation, beside those with its own prefix."""

_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True, slots=True)
class Partition:
    """Partition of a cluster.

    Attributes:
        name: Name of the partition.
        most_s: Longest time limit (s); infinite if there is none.
        default_s: Time limit (s) of a job that asks for none; infinite if there is none.
        tres: Trackable resources of all its nodes, as Slurm writes them.
    """

    name: str
    most_s: float
    default_s: float
    tres: str

    def total(self, resource: str) -> int:
        """Number of a resource that the partition has."""
        return resource_count(self.tres, resource)


def partition(name: str | None) -> Partition:
    """Partition by its name; None for the default one of the cluster.

    Raises:
        UnfitEnvironment: There is none, or Slurm does not answer.
    """
    lines = asked(["scontrol", "--all", "--oneliner", "show", "partition"]).splitlines()
    found = {each["PartitionName"]: each for line in lines if "PartitionName" in (each := fields(line))}
    if name is not None and name not in found:
        raise UnfitEnvironment(f"the cluster has no partition {name}", did_you_mean(name, found) or "see `sinfo`")
    own = found[name] if name is not None else next((each for each in found.values() if _is_default(each)), None)
    if own is None:
        raise UnfitEnvironment("the cluster has no default partition", "name one with --partition")
    most_s = duration_s(own.get("MaxTime", ""))
    default_s = duration_s(own.get("DefaultTime", ""))
    return Partition(
        own["PartitionName"],
        inf if most_s is None else most_s,
        default_s if default_s is not None else inf if most_s is None else most_s,
        own.get("TRES", ""),
    )


def _is_default(partition: dict[str, str]) -> bool:
    return partition.get("Default") == "YES"


def own(folder: str) -> list[OwnJob]:
    """Jobs of the chain in a folder that wait or run.

    Raises:
        UnfitEnvironment: Slurm does not answer.
    """
    return own_jobs.read(asked(["squeue", "--me", "--all", "--noheader", f"--Format={own_jobs.FORMAT}"]), folder)


def sight(
    where: str, total: int, resource: str, past: Sequence[BatchJob] = (), leave_out: Collection[str] = ()
) -> QueueSight:
    """The queue of a partition now.

    Args:
        where: Name of the partition.
        total: Number of the resource that the partition has.
        resource: Trackable resource that counts.
        past: Jobs of the log.
        leave_out: IDs of jobs to leave out.

    Raises:
        UnfitEnvironment: Slurm does not answer.
        InvalidJobFile: It answers in another form.
    """
    listing = asked(
        [
            "squeue",
            "--all",
            "--array",
            "--noheader",
            "--states=PENDING,RUNNING",
            f"--partition={where}",
            f"--Format={squeue_listing.FORMAT}",
        ],
        environment=_plain(),
    )
    return squeue_listing.sight(
        listing, gpus=total, at_s=time.time(), past=past, leave_out=leave_out, resource=resource
    )


def log_text(where: str) -> str:
    """Output of `sacct` for a partition and the last `LOG_DAYS`.

    Raises:
        UnfitEnvironment: The cluster has no accounting, or Slurm does not answer.
    """
    columns = (*sacct_log.COLUMNS, *sacct_log.OPTIONAL, *sacct_log.RESOURCES)
    return asked(
        [
            "sacct",
            "--allusers",
            "--allocations",
            f"--partition={where}",
            f"--starttime=now-{LOG_DAYS}days",
            "--parsable2",
            f"--format={','.join(columns)}",
        ],
        environment=_plain(),
    )


def submit(script: Path) -> int:
    """Submit a batch script and return the ID of its job.

    Raises:
        UnfitEnvironment: Slurm refuses the job, or does not answer.
    """
    return submitted([str(script)], environment=_outside())


def cancel(jobs: Collection[int]) -> None:
    """Cancel jobs; those that have ended are no error.

    Raises:
        UnfitEnvironment: Slurm does not answer.
    """
    if jobs:
        asked(["scancel", "--quiet", *map(str, jobs)])


_FORGOTTEN = "Invalid job id"
"""Slurm's word for a job that it does not know any more."""


def job_facts(job: int) -> dict[str, str]:
    """Fields of a job that Slurm still knows, such as `JobState` and `Restarts`; none if it has forgotten the job.

    Raises:
        UnfitEnvironment: Slurm does not answer.
    """
    try:
        return fields(asked(["scontrol", "--oneliner", "show", "job", str(job)]))
    except UnfitEnvironment as error:
        if _FORGOTTEN in str(error):
            return {}
        raise


def resource_of(gpus_per_node: int | None) -> str:
    """Trackable resource that the allocations of a chain wait for."""
    return CPU if gpus_per_node is None else GPU


def _plain() -> dict[str, str]:
    """Environment of this process in which Slurm writes moments as seconds since 1970."""
    return {**os.environ, "SLURM_TIME_FORMAT": "%s"}


def _outside() -> dict[str, str]:
    """Environment of this process without what Slurm sets in an allocation, which a successor would get, too."""
    if "SLURM_JOB_ID" not in os.environ:
        return dict(os.environ)
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (name.startswith("SLURM_") or name in _OF_ALLOCATIONS)
    }
