"""Chains of allocations for tests."""

from __future__ import annotations

from dataclasses import replace

from ecoshare.contrib.chains.allocation_chain import AllocationChain, AllocationEnd, ChainAllocation, Overlap
from ecoshare.contrib.chains.own_jobs import OwnJob

CHAIN = AllocationChain(
    name="train",
    jobs="/home/ann/jobs.yaml",
    digest="d",
    folder="/home/ann/runs/chain-train",
    heading="#!/bin/bash\n",
    run_options=("--on", "slurm"),
    resume_options=("--on", "slurm"),
    asked={},
    overlap=Overlap.TAKE_OVER,
    predictor="planned",
    margin_s=0.0,
    ahead=1,
    limit_s=1000.0,
    stop_s=100.0,
    partition="main",
    resource="gres/gpu",
    count=4,
    total=8,
    nodes=1,
    begun_s=0.0,
)


def chain(*allocations: ChainAllocation, **fields: object) -> AllocationChain:
    """Chain with these allocations."""
    return replace(CHAIN, allocations=allocations, **fields)  # type: ignore[arg-type]


def waits(number: int, submitted_s: float = 0.0) -> ChainAllocation:
    """Allocation that waits in the queue; its job has ten times its number."""
    return ChainAllocation(number, submitted_s, job=10 * number)


def works(number: int, from_s: float) -> ChainAllocation:
    """Allocation that works since its start."""
    return replace(waits(number), started_s=from_s, works_from_s=from_s)


def idle(number: int, from_s: float) -> ChainAllocation:
    """Allocation that waits for its predecessor since its start."""
    return replace(waits(number), started_s=from_s)


def over(number: int, from_s: float, to_s: float, end: AllocationEnd = AllocationEnd.STOPPED) -> ChainAllocation:
    """Allocation that worked from its start to its end."""
    return replace(works(number, from_s), works_to_s=to_s, ended_s=to_s, end=end)


def listed(number: int, state: str = "RUNNING", left_s: float = 1000.0, job: int | None = None) -> OwnJob:
    """Slurm job of an allocation."""
    return OwnJob(job or 10 * number, number, state, left_s, 1000.0, "None", "cpu=4,gres/gpu=4")
