"""Generator of traces: `ecoshare simulate --generate KIND`; equal for equal seeds."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from ecoshare.errors import UsageError, did_you_mean
from ecoshare.simulation.traces import philly_mix, salus, searches, sweep_trace
from ecoshare.simulation.traces.job_trace import Trace

KINDS = ("salus", "philly", "sweep")
"""Kinds of generated traces of jobs; `searches.KINDS` are the kinds of sweeps."""

ALL_KINDS = (*KINDS, *searches.KINDS)

_MOST_JOBS = 10_000_000

SALUS_GPUS, SALUS_LOAD = 1, 2.34
"""One GPU, as in the paper, and the load at which 100 jobs of the catalogue have the paper's mean JCT under FIFO, 170.6
min (mean of 200 seeds). The jobs arrive in less than half of the time that they take."""

PHILLY_GPUS, PHILLY_LOAD = 400, 0.94
"""GPUs and load of the Philly trace: its GPU-seconds / those of 400 GPUs from its first arrival to its last."""


def generate(
    kind: str,
    jobs: int,
    seed: int,
    data: Path | None = None,
    *,
    gpus: int | None = None,
    load: float | None = None,
) -> Trace:
    """Generated trace of one kind.

    Args:
        kind: One of `KINDS` or of `searches.KINDS`.
        jobs: Number of jobs; for `searches.KINDS`, number of trials (of the first bracket for `bohb`).
        data: Folder with `salus/workloads.csv` and `philly/philly_jobs.csv`; None for published figures.
        gpus: Number of GPUs that the load refers to; no job asks for more. None for the default of the kind.
        load: Work that arrives / work that the GPUs can do. Sweeps ignore it: their trials arrive at once or when the
            scheduler asks for them.

    Raises:
        UsageError: An argument is out of range, or a file of `data` cannot be read.
        InvalidJobFile: A file of `data` has faults; the error lists them.
    """
    if kind not in ALL_KINDS:
        raise UsageError(f"--generate {kind}: expected one of {', '.join(ALL_KINDS)}", did_you_mean(kind, ALL_KINDS))
    if not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"{jobs} jobs: expected 1 to {_MOST_JOBS}")
    if seed < 0:
        raise UsageError(f"seed {seed}: expected 0 or more")
    if gpus is not None and gpus < 1:
        raise UsageError(f"{gpus} GPUs: expected 1 or more")
    if load is not None and not (isfinite(load) and load > 0.0):
        raise UsageError(f"--load {load:g}: expected a positive number")
    match kind:
        case "salus":
            return salus.generate(jobs, seed, data, gpus or SALUS_GPUS, load or SALUS_LOAD)
        case "philly":
            return philly_mix.generate(jobs, seed, data, gpus or PHILLY_GPUS, load or PHILLY_LOAD)
        case "sweep":
            return sweep_trace.generate(jobs, seed)
        case _:
            return searches.generate(kind, jobs, seed, gpus or 1)
