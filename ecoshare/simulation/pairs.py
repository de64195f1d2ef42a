"""Speeds of two jobs beside each other on one GPU, from Gavel's table of measured speeds.

::

    {"v100": {"('ResNet-18 (batch size 32)', 1)": {"null": 40.1, "('LM (batch size 5)', 1)": [21.0, 9.3]}}}
      GPU          type of job, number of GPUs      alone         beside this job: own speed, speed of the other

`traces/measured_speeds.py` describes the form; speeds are in iterations a second. Source: Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ecoshare.errors import UsageError
from ecoshare.simulation.traces.job_trace import TraceJob
from ecoshare.simulation.traces.measured_speeds import read as read_speeds
from ecoshare.simulation.traces.measured_speeds import speed_of

IN_TURN = 0.5
"""Speed of each of two jobs that do not fit beside each other (a pair of zeros): one of them waits at any time. The
hand-over between them is free here, which favours policies that pack such pairs."""

_Kind = tuple[str, int]
"""Type of a job and its number of GPUs."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured speeds of two jobs beside each other on each of their GPUs.

    Attributes:
        file: Path of the table.
        known: Relative speed of the first job beside the second: rate beside it / rate alone; at most 1.
    """

    file: str
    known: Mapping[tuple[_Kind, _Kind], float]

    def speed(self, job: TraceJob, other: TraceJob) -> float | None:
        """Relative speed of a job beside another: rate beside it / rate alone; None if the pair was not measured."""
        return self.known.get(((job.job_class, job.gpus), (other.job_class, other.gpus)))


def read(path: Path, gpu_model: str) -> Pairs:
    """Pairs on `gpu_model` in the file at `path`.

    Raises:
        UsageError: The file cannot be read, has another form, or has no pairs on this model.
    """
    known = {}
    for name, row in read_speeds(path, gpu_model).table.items():
        cells = row if isinstance(row, dict) else {}
        alone = speed_of(cells.get("null"))
        for other, pair in cells.items():
            if other == "null" or not alone:
                continue
            both = [speed_of(each) for each in pair] if isinstance(pair, list) else []
            if len(both) != 2 or None in both:
                hint = "expected two speeds in iterations a second, its own first"
                raise UsageError(f"{path}: {name} beside {other} is {pair!r}"[:200], hint)
            # A job beside another is faster than alone only by measurement error.
            known[_kind(name), _kind(other)] = min(1.0, (both[0] or 0.0) / alone) if all(both) else IN_TURN
    if not known:
        raise UsageError(f"{path} has no pairs of jobs on {gpu_model!r}", "Gavel's simulation_throughputs.json has")
    return Pairs(str(path), known)


def _kind(name: str) -> _Kind:
    """Type and GPUs from `('A3C', 1)`, or from a bare type, which has one GPU."""
    try:
        job_type, gpus = literal_eval(name)
        return str(job_type), int(gpus)
    except (SyntaxError, ValueError, TypeError, OverflowError, MemoryError, RecursionError):  # the text can be anything
        return name, 1
