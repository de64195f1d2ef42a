"""Jobs in the log of a cluster: an arrival, a duration and a number of GPUs each, and nothing about iterations.

The readers of such logs share this: what the logs lack and what is assumed in its place, which jobs are left out, and
how many. Time 0 is the arrival of the first job that is read.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import ceil
from typing import NamedTuple

from ecoshare.base.plural import counted
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob

NEVER_RAN = "that never ran"
WITHOUT_GPU = "without a GPU"
UNFINISHED = "without a start or an end"

_ASSUMED = "iterations are not known and taken to be of about a second, and a job's class is its number of GPUs"

_ASSUMED_SHARES = (
    "the instances of a job run at once, each on a GPU, or a part of one, of its own; a part of a GPU has that part of"
    " its memory, and jobs with such parts do not slow each other (--lanes 4 puts four quarters on a GPU; with"
    " one lane, each job has its GPUs to itself); types of GPU are not told apart"
)


class _Read(NamedTuple):
    at_s: float
    name: str
    duration_s: float
    gpus: int
    share: float | None
    line: int


class ClusterJobs:
    """Jobs of a log, while it is read."""

    def __init__(self, file: str, kind: str) -> None:
        """No job yet.

        Args:
            file: Name of the file, for messages.
            kind: Name of the form, such as "Philly".
        """
        self._file, self._kind = file, kind
        self._jobs: list[_Read] = []
        self._left_out: Counter[str] = Counter()

    def add(
        self, name: str, at_s: float, duration_s: float, gpus: int, line: int = 0, share: float | None = None
    ) -> None:
        """Add a job, or count it as left out if it has no GPU or no duration.

        Args:
            at_s: Arrival (s) on the clock of the log.
            line: Line in the file, from 1; 0 if it has none.
            share: Part of each of its GPUs that the job asks for; None if the log does not say.
        """
        if gpus < 1:
            self.leave_out(WITHOUT_GPU)
        elif not duration_s > 0.0:
            self.leave_out(NEVER_RAN)
        else:
            self._jobs.append(_Read(at_s, name, duration_s, gpus, share, line))

    def leave_out(self, why: str) -> None:
        """Count a job that is left out."""
        self._left_out[why] += 1

    def trace(self, more: str = "") -> Trace:
        """Trace of the jobs, in the order of arrival.

        Args:
            more: Further assumption, in words.
        """
        read, self._jobs = self._jobs, []
        read.sort(key=lambda job: job.at_s)
        shares = any(job.share is not None for job in read)
        notes = [_ASSUMED, *([_ASSUMED_SHARES] if shares else ()), *([more] if more else ())]
        if self._left_out:
            counts = (f"{counted(count, 'job')} {why}" for why, count in sorted(self._left_out.items()))
            notes.append(f"left out: {', '.join(counts)}")
        first_s = read[0].at_s if read else 0.0
        phases: dict[float, tuple[Phase]] = {}  # durations repeat; sharing phases saves a third of the memory
        jobs = []
        for job in read:
            if job.duration_s not in phases:
                phases[job.duration_s] = (a_second_each(job.duration_s),)
            what, name = phases[job.duration_s], job_class(self._kind, job.gpus, job.share)
            jobs.append(TraceJob(job.name, name, job.at_s - first_s, what, job.gpus, share=job.share, line=job.line))
        return Trace(self._file, self._kind, tuple(jobs), "; ".join(notes))


@cache
def job_class(kind: str, gpus: int, share: float | None = None) -> str:
    """Class of a job of which only the GPUs are known, such as `philly-4gpu` or `pai-4x0.25gpu`."""
    return f"{kind.lower()}-{gpus}gpu" if share is None or share == 1.0 else f"{kind.lower()}-{gpus}x{share:g}gpu"


def whole_gpus(instances: int, gpus: float) -> tuple[int, float]:
    """Number of GPUs of a gang, and its part of each.

    Args:
        gpus: GPUs of each instance, such as 0.25 or 8. An instance with 2.5 GPUs has 3, and 5/6 of each.
    """
    each = ceil(gpus)
    return instances * each, gpus / each if each else 0.0


def a_second_each(duration_s: float) -> Phase:
    """Phase of a known duration and unknown iterations, with about one iteration a second."""
    iterations = max(1, round(duration_s))
    return Phase(iterations, duration_s / iterations)
