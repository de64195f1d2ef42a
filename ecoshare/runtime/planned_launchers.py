"""Launchers of a plan: the memory that they are granted, and the notes about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.class_profile import MemoryDemand

_MOST_NAMED = 3


def with_whole_device(job: PlannedJob, memory_bytes: int) -> PlannedJob:
    """The job with all memory of the device if it is a launcher, else the job itself.

    On a GPU nothing limits the memory of child processes, and a profile has measured the launcher alone.

    Args:
        job: A job for a GPU.
        memory_bytes: Memory (bytes) of the device that the run may use.
    """
    if not job.launcher:
        return job
    return replace(job, spec=replace(job.spec, memory=MemoryDemand(memory_bytes)))


def notes(jobs: Sequence[PlannedJob], on_processors: bool) -> list[str]:
    """Notes for the user about the launchers among these jobs; empty if there is none."""
    found = [job for job in jobs if job.launcher]
    if not found:
        return []
    names = ", ".join(f"{job.spec.name} ({job.launcher})" for job in found[:_MOST_NAMED])
    names += f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    memory = "" if on_processors else ", with all memory of the device"
    lines = [f"{names}: child processes do the work, so the job keeps its lane from start to end{memory}"]
    limited = [job.spec.name for job in found if job.source.startup_timeout_s is not None]
    if limited:
        names = ", ".join(limited[:_MOST_NAMED])
        lines.append(f"`startup_timeout` of {names}: no step of a child process is seen, so it limits the whole job")
    return lines
